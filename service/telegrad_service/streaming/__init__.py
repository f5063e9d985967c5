"""WebSocket connections: the protocol, its frames, and the polling for a client's next message."""
