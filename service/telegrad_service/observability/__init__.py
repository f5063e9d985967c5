"""Observability: request ids, counts and metrics, the log, events of sessions, traces."""
