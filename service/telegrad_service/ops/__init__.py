"""One op a request."""
