"""Cases of the ops in ``ops/random``."""
