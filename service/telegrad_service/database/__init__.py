"""The server's database: SQLite by default, PostgreSQL by URL. It holds no tensors."""
