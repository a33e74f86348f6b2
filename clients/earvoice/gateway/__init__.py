"""Doors for those who cannot open a gRPC stream: WebSocket, a page, readers, other dialects."""
