"""The console: a page on which people see what sessions do. It uses the API only, so any tool can do the same."""
