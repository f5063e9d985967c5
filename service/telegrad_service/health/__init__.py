"""Liveness and readiness of the server, and links to its pages."""
