"""Sessions: create, list, read, update and end them."""
