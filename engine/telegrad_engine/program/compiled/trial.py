"""The first run of an executable: on copies, beside the eager run, and everything that either leaves is compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...answer import Answer, describe
from ...dtypes import FLOATING
from ...session import Session
from ...tensor import Tensor
from .effects import Run, Site
from .executable import Executable
from .graphs import rebuilt
from .input_signature import Inputs

TOLERANCE = {"float64": 1e-9, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Error allowed, relative to the largest magnitude in the tensor: a sum of large terms may cancel."""
FLOOR = {"float64": 1e-3}
"""The magnitude below which errors are measured as if it were this, where not 1: small results cancel."""


class Trial:
    """What the program does to copies of the tensors that it takes, to be held against what it does to them."""

    def __init__(
        self,
        session: Session,
        executable: Executable,
        ids: Sequence[str],
        found: Inputs,
        run: Run,
        generator: np.random.Generator,
    ) -> None:
        self._generator = generator
        effects = executable.effects
        self._ids, self._analysis, self._exact = ids, effects.analysis, executable.exact
        self._copy = Session(device=session.device, dtype=session.environment.dtype, max_bytes=2**62)
        self._space = found.space
        self._cells: dict[int, list[int]] = {}
        self._taken = [self._copied(tensor) for tensor in found.tensors]
        for tensor, kind in zip(self._taken, found.kinds.tensors, strict=True):
            tensor._grad = None if kind.grad is None else self._taken[kind.grad]
        for i, place in zip(effects.analysis.taken, found.kinds.places, strict=True):
            self._copy.tensors[ids[i]] = self._taken[place]
        behind = found.behind
        nodes = () if behind is None else rebuilt(behind.kind, self._taken, behind.arrays, behind.numbers)
        self._answer = effects.put(Site(self._copy, ids, self._taken, nodes, self._space), run)

    def difference(self, session: Session, answer: Answer) -> str | None:
        """What the eager run, which gave ``answer``, left otherwise; None if it came to the same."""
        for name, value in answer.values.items():
            other = self._answer.values.get(name)
            if other is None or other.description != value.description:
                return f"{name}, when it is fetched"
            if value.array is not None and not self._alike(other.array, value.array):
                return f"the value of {name}, when it is fetched"
        if self._generator.bit_generator.state != session.environment.generator.bit_generator.state:
            return "how many random numbers it draws"
        places = [*self._analysis.taken, *self._analysis.made, *self._analysis.freed]
        ours, theirs = [[s.tensors.get(self._ids[i]) for i in places] for s in (self._copy, session)]
        if _shared(ours) != _shared(theirs):
            return "which tensors are left, and which of them share memory"
        for i, a, b in zip(places, ours, theirs, strict=True):
            if a is not None and b is not None and (found := self._difference(a, b)):
                return f"{found} of {self._ids[i]}"
        return None

    def _difference(self, a: Tensor, b: Tensor) -> str | None:
        if describe("", a) != describe("", b):
            return "the shape, dtype, version or history"
        if not self._alike(a._host(), b._host()):
            return "the value"
        if (a._grad is None) != (b._grad is None):
            return "whether there is a gradient"
        if a._grad is not None and (found := self._difference(a._grad, b._grad)):
            return f"{found} of the gradient"
        return None

    def _copied(self, tensor: Tensor) -> Tensor:
        copy: Tensor = self._space.copy(tensor)
        copy._cell = self._cells.setdefault(id(tensor._cell), list(tensor._cell))
        copy._requires_grad = tensor._requires_grad
        return copy

    def _alike(self, a: Any, b: Any) -> bool:
        """Whether values are the same, or as near as another order of the same sums may leave them."""
        return _same(a, b) if self._exact else _close(a, b)


def _shared(tensors: Sequence[Tensor | None]) -> list[int | None]:
    """For each tensor the first that has the same memory."""
    first: dict[int, int] = {}
    return [None if t is None else first.setdefault(id(t._cell), i) for i, t in enumerate(tensors)]


def _close(a: Any, b: Any) -> bool:
    if a.dtype not in FLOATING:
        return bool(np.array_equal(a, b))
    name = b.dtype.name
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    scale = max(min(float(finite.max(initial=0.0)), 1e30), FLOOR.get(name, 1.0))
    return bool(np.allclose(a, b, TOLERANCE[name], TOLERANCE[name] * scale * 0.3, equal_nan=True))


def _same(a: Any, b: Any) -> bool:
    """Whether every element is the same number, or NaN in both."""
    same = (a == b) & (np.signbit(a) == np.signbit(b)) if a.dtype in FLOATING else a == b
    return bool((same | ((a != a) & (b != b))).all())
