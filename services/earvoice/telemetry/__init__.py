"""What the services tell about themselves while they run: spans and metrics."""
