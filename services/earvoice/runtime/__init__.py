"""The chassis every service shares: settings, errors, status, server, engine thread, logs."""
