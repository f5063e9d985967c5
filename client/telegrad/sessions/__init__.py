"""Sessions: the current one, its default dtype, and random numbers."""
