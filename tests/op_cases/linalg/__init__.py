"""Cases of the ops in ``ops/linalg``."""
