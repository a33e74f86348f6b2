"""The decoder service: states in; tokens, log-probabilities and cross-attention out."""
