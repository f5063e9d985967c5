"""Which programs of a session run planned or compiled, and why the others do not."""
