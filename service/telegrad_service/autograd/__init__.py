"""Gradients: backward and grad, and the passes that wait for the client."""
