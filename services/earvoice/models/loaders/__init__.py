"""Readers of checkpoints that other toolkits have written."""
