"""Cases of the ops in ``ops/nn``."""
