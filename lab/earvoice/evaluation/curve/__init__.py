"""Quality over latency: points, lines, bands, tables and pictures."""
