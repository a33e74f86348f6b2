"""Translating a test set through running services, and writing down what came of it."""
