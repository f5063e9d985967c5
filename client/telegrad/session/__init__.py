"""Sessions: which one the SDK works in, its defaults and random numbers."""
