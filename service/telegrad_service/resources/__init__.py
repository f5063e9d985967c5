"""The resources of the API, a module each: its schemas, its routes, and the commands and queries that they run."""
