"""Tools of the repository that no distribution contains."""
