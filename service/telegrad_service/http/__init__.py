"""HTTP: protocol and connections, bodies and their limits, media types, codings, origins."""
