"""What the server can do: ops, verbs and devices."""
