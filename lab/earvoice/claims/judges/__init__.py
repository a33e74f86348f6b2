"""What each claim asks of the results."""
