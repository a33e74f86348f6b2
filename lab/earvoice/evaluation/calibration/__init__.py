"""Choosing a model's own policy parameters on a development set."""
