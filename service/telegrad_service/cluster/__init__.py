"""Several machines as one server: gateways, workers, and the directory that says which worker has a session."""
