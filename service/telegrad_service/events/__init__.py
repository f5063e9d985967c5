"""The events of a session, as they happen."""
