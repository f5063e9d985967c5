"""Custom functions: registered as data, listed, applied and removed."""
