"""What the scripts of the gallery share: the tensor library by its name, equal numbers to start from, and printing.

A script has one function, ``main(lib)``, which uses nothing of ``lib`` but what torch and telegrad both have; where
telegrad has more, the script asks ``has_ops``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Library = Any
"""torch or telegrad: the module itself."""
Tensor = Any
"""A tensor of either."""


def run(main: Callable[[Library], None]) -> None:
    """Call ``main`` with the library that the command line names: torch, or telegrad.

    telegrad connects to the server that TELEGRAD_URL names, and computes in this process without it.
    """
    if len(sys.argv) != 2 or sys.argv[1] not in ("torch", "telegrad"):
        sys.exit(f"usage: python {sys.argv[0]} torch|telegrad")
    library = importlib.import_module(sys.argv[1])
    if sys.argv[1] == "torch":
        main(library)
    else:
        with library.connect(seed=0):
            main(library)


def has_ops(lib: Library) -> bool:
    """Whether functions can be registered under a name, as they can in telegrad alone."""
    return hasattr(lib, "register_function")


def normal(lib: Library, seed: int, *shape: int, requires_grad: bool = False) -> Tensor:
    """A float64 tensor of NumPy's normal numbers, the same in both libraries."""
    return lib.tensor(np.random.default_rng(seed).standard_normal(shape), requires_grad=requires_grad)


def fill(lib: Library, module: Any, seed: int) -> Any:
    """The module in float64, its parameters set to small numbers that are the same in both libraries."""
    rng = np.random.default_rng(seed)
    module = module.double()
    with lib.no_grad():
        for parameter in module.parameters():
            parameter.copy_(lib.tensor(rng.uniform(-0.3, 0.3, tuple(parameter.shape))))
    return module


def show(label: str, value: Any) -> None:
    """Print a tensor, or numbers, with five decimals; None as it is."""
    if value is None:
        print(f"{label}: None")
        return
    numbers = value.detach().numpy() if hasattr(value, "detach") else value
    rounded = np.round(np.asarray(numbers, dtype=np.float64), 5) + 0.0  # the sum makes -0 a 0
    print(f"{label}: {np.array2string(rounded, separator=', ', formatter={'float_kind': '{:.5f}'.format})}")
