"""Questions that the papers ask, answered from logs and recordings of our own models."""
