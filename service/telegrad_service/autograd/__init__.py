"""Gradients: backward and grad."""
