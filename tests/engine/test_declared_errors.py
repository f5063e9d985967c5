"""An op whose kernel raises errors because of values declares it.

The tests read kernels and rules, since no set of calls shows all that a kernel may raise.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest

from telegrad_engine.schema.op import CATALOGUE, Op

WITHOUT_VALUES = ("telegrad_engine.shapes", "telegrad_engine.dtypes")
"""The functions of these modules know only shapes, dtypes and Python's numbers."""
LAYOUTS = {"view", "as_strided"}
"""These kernels raise because of strides, which the SDK knows."""


def called_by(function: Callable[..., Any]) -> set[FunctionType]:
    """The engine's functions that a function may call, and itself."""
    found: set[FunctionType] = set()
    waiting: list[Any] = [function]
    while waiting:
        each = inspect.unwrap(waiting.pop())
        if not isinstance(each, FunctionType) or each in found or not each.__module__.startswith("telegrad_engine"):
            continue
        found.add(each)
        waiting += [each.__globals__.get(name) for code in codes(each.__code__) for name in code.co_names]
        waiting += [cell.cell_contents for cell in each.__closure__ or ()]
    return found


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def raises(function: FunctionType) -> bool:
    """Whether a function has a ``raise`` of its own."""
    source = textwrap.dedent(inspect.getsource(function))
    try:
        return any(isinstance(node, ast.Raise) for node in ast.walk(ast.parse(source)))
    except SyntaxError:  # a lambda in the middle of a call
        return False


def test_kernels_raise_for_shapes_in_their_rules_only() -> None:
    undeclared = {
        (op.key, function.__name__)
        for op in CATALOGUE
        if not (op.composite or op.private or op.may_raise or op.key in LAYOUTS)
        for function in called_by(op.raw) - called_by(op.rule)
        if function.__module__ not in WITHOUT_VALUES and raises(function)
    }
    assert not undeclared


@pytest.mark.parametrize("op", [op for op in CATALOGUE if op.may_raise], ids=lambda op: op.key)
def test_what_is_declared_can_happen(op: Op) -> None:
    assert not op.composite
    assert any(raises(function) for function in called_by(op.raw))
