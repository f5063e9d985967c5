"""Hosts of sessions, the actors that run their programs in order, and the record of answers."""
