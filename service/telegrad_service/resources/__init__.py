"""The resources of the API: schemas, routes, and the commands and queries that these run in a session."""
