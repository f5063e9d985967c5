"""Registered functions: Python that is traced to a definition, which a server keeps and runs."""
