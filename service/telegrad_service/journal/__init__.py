"""Journals of durable sessions: their format, and the folders and object stores that keep them."""
