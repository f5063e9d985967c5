"""Cases of the ops in ``ops/random/sampling.py``."""

from __future__ import annotations

from ..stand_ins import Cases

CASES: Cases = {
    "rand": [],
    "randn": [],
    "rand_like": [],
    "randn_like": [],
    "randint": [],
    "randint.high": [],
    "randint_like.low": [],
    "randint_like": [],
    "poisson": [],
    "randperm": [],
    "bernoulli": [],
}
