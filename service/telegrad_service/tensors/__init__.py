"""Tensors: make, list, read, change, forget, and their gradients."""
