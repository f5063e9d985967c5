"""Snapshots of sessions: export and import as one file, and forks."""
