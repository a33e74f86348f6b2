"""Access without a gRPC stream: a WebSocket, a web page, readers, other dialects."""
