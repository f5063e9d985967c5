"""One op per request."""
