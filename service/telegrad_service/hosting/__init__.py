"""Hosts of sessions, the actors that run their commands in order, and the record of answers."""
