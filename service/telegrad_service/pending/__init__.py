"""Calls that passes wait for: what the client must evaluate before they go on."""
