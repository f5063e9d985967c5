"""Sessions: create, list, look at, change, end."""
