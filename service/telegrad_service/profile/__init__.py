"""Where the time of a session goes."""
