"""Journals of durable sessions: frames, arguments as bytes, and the files of a session."""
