"""The profile of a session."""
