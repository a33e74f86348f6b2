"""What the service tells its operators about sessions: spans and metrics."""
