"""How programs reach a session: in this process, over HTTP, or over a WebSocket."""
