"""What is served at ``/``."""
