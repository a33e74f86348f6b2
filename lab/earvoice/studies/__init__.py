"""The papers' questions, answered with logs and recordings of our own models."""
