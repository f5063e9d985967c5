"""Shared parts of all routes: media types, bodies, sequence numbers, dependencies."""
