"""Quality and latency of what was translated."""
