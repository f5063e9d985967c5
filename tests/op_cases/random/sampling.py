"""Cases of the ops in ``ops/random/sampling.py``."""

from __future__ import annotations

from ..stand_ins import Cases, T, case

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
    "dropout": [
        case(T(2, 3), 0.0),
        case(T(2, 3), 1.0),
        case(T(2, 3), 0.5, False),
        case(T(0), 0.5),
        case(T(), 0.0),
    ],
}
