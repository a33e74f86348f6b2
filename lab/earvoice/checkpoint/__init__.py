"""Checkpoints from the command line: what they are, and from the papers' format to ours."""
