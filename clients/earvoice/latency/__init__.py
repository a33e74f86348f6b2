"""Where the time of released words went, read from the services' spans."""
