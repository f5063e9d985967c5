"""Whether the server lives and takes work."""
