"""HTTP: the protocol, limits on connections and bodies, representations, origins."""
