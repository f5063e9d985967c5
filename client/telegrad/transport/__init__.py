"""Transports: the ways to a session, in this process, over HTTP, or over a WebSocket."""
