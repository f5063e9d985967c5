"""NumPy while a program runs once to be planned: its functions, and the NumPy backend's own, on a tape (tape.py)."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from .base import Backend
from .numpy import NUMPY
from .tape import KNOWN, LINEAR, OF_KINDS, Tape, TapedArray, noted
from .unknown import NEEDED, Number, Untraceable


class _Linalg:
    """``numpy.linalg``, noted."""

    LinAlgError = np.linalg.LinAlgError

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def __getattr__(self, name: str) -> Any:
        return noted(self._tape, name, getattr(NUMPY.linalg, name), LINEAR)


class TapingBackend(Backend):
    """NumPy's functions and the NumPy backend's own, on a tape."""

    name, library = "cpu", "numpy"
    aliases = False
    namespace = np

    def __init__(self) -> None:
        super().__init__()
        self.tape = Tape()
        self.guards: list[TapedArray] = []
        """Conditions that were taken to hold."""
        self.linalg = _Linalg(self.tape)
        # Those that a base class has would be found before __getattr__ is asked.
        for name in KNOWN | OF_KINDS:
            if hasattr(NUMPY, name):
                self.__dict__[name] = self._function(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = self.__dict__[name] = self._function(name)
        return found

    def _function(self, name: str) -> Any:
        found = getattr(NUMPY, name)
        if isinstance(found, (np.ufunc, type)):
            return found  # which come back by __array_ufunc__, or make no arrays
        if callable(found):
            return noted(self.tape, name, found, KNOWN)
        if isinstance(found, ModuleType):
            raise Untraceable(f"uses numpy.{name}")
        return found

    def one(self, array: Any) -> Any:
        """1 as a 0-dim array."""
        return NUMPY.one(array)

    def zero(self, array: Any) -> Any:
        """0 as a 0-dim array."""
        return NUMPY.zero(array)

    def is_contiguous(self, array: Any) -> bool:
        """Whether the elements lie in memory in row-major order, without gaps."""
        return bool(array.flags.c_contiguous)

    def number(self, array: Any) -> Any:
        """What stands for the one element of an array."""
        return Number(array.astype(np.float64)) if isinstance(array, TapedArray) else float(array)

    def wrapped(self, number: float, dtype: Any) -> Any:
        """A 0-dim array of a number."""
        return self.tape.note(NUMPY.wrapped, (number, dtype), {})

    def holds(self, condition: Any, usually: bool) -> bool:
        """Whether the condition holds in this run, noted as a guard."""
        if not isinstance(condition, TapedArray):
            return bool(condition)
        holds = bool(condition.value)
        self.guards.append(condition if holds else np.logical_not(condition))  # type: ignore[arg-type]
        return holds

    def download(self, array: Any) -> Any:
        """An array that is known already. Raises Untraceable for one that is not."""
        if isinstance(array, TapedArray):
            raise Untraceable(NEEDED)
        return array

    def asks_for_values(self, error: Exception) -> bool:
        """Whether an error says that values were needed; what does says so itself, as Untraceable."""
        return False
