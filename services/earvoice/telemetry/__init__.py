"""What running services report about themselves: spans and metrics."""
