"""Tensors: create, list, read, update and delete them and their gradients."""
