"""Which programs of a session run compiled, and why the others do not."""
