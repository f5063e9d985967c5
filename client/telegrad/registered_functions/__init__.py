"""Registered functions: Python code traced to a definition that a server stores and runs."""
