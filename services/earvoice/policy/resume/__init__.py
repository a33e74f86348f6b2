"""Interrupted sessions: what is kept of one in a token, and how it goes on from there."""
