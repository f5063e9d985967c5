"""Cases of the ops in ``ops/math``."""
