"""API keys: create, list and revoke them, over HTTP and on the command line."""
