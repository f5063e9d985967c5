"""Programs: a batch of instructions in one request."""
