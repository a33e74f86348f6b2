"""Speech and text for training: what there is, who says it, and the encoder's states of it."""
