"""How a module prints its options, and the checks that several families share."""

from __future__ import annotations

from typing import Any


def options(module: Any, *names: str) -> str:
    """The named attributes as ``extra_repr`` shows them; ``inplace`` only where it is set."""
    shown = [name for name in names if name != "inplace" or module.inplace]
    return ", ".join(f"{name}={getattr(module, name)!r}" for name in shown)


def expanded(value: Any, count: int) -> tuple[Any, ...]:
    """One size for every dimension, or a size each as given."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,) * count
