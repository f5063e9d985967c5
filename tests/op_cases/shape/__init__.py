"""Cases of the ops in ``ops/shape``."""
