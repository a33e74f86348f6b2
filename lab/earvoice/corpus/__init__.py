"""Training data: the speech and text there is, who says it, and the encoder states of it."""
