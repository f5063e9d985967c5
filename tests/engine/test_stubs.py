"""Type checkers know the functions and methods that the SDK makes from the catalogue of ops.

Internals: the texts of the stubs, which are in no file before a build.
"""

from __future__ import annotations

import ast

import pytest

from telegrad_engine.schema.op import CATALOGUE
from telegrad_engine.stubs import client_stubs, engine_stubs


@pytest.mark.parametrize(("name", "text"), (engine_stubs() | client_stubs()).items())
def test_a_stub_is_a_python_file(name: str, text: str) -> None:
    functions = [node for node in ast.walk(ast.parse(text, name)) if isinstance(node, ast.FunctionDef)]
    assert len(functions) > 20 and all(node.returns is not None for node in functions)


def test_the_stub_of_tensors_has_every_method() -> None:
    (text,) = engine_stubs().values()
    stubs = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    methods = {op.name for op in CATALOGUE if op.method and not op.internal}
    assert methods <= stubs
