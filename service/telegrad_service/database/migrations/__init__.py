"""Alembic's migrations of the database; a new table gets a new file in ``versions/``."""
