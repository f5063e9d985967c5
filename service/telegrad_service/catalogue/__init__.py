"""The catalogue: ops, verbs and devices of the server."""
