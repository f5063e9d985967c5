"""An op's declaration is the only place for its facts, says that its kernel raises errors, and gives the stubs.

Internals: the texts of the stubs, which are in no file before a build.
"""

from __future__ import annotations

import ast
import inspect
import operator
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

import telegrad
import telegrad_engine
import telegrad_service
from telegrad_engine.schema.op import CATALOGUE, Op
from telegrad_engine.stubs import client_stubs, engine_stubs

SOURCES = [Path(module.__file__).parent for module in (telegrad_engine, telegrad, telegrad_service)]
DECLARATIONS = SOURCES[0] / "ops"
NUMPY = SOURCES[0] / "arrays"
"""The package that only knows array libraries: names in it are those of NumPy's functions."""
KEYS = {op.key for op in CATALOGUE}
OPERATORS = set(dir(operator))
"""The names of Python's operators, some of which are names of ops, such as "add" and "lt"."""
OTHER_NAMES = {
    ("telegrad", "aten.py", "cast"): "ATen's names of ops that have another name here",
    ("telegrad", "aten.py", "floor_divide"): "overloads of ATen",
    ("telegrad", "nn/init.py", "relu"): "values of calculate_gain's argument",
    ("telegrad", "tensor/keyword_arguments.py", "adjoint"): "torch's functions without out, compared one by one",
    ("telegrad", "tensor/keyword_arguments.py", "addmm"): "torch's functions that do not cast to out",
}
"""The collections of names that are ops' names, too, by package, file and one of the names, and what they are."""


def collections(tree: ast.AST) -> Iterator[set[str]]:
    """The strings in each display, in the arguments of each call, and the words of each string that is a list."""
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, (ast.Set, ast.List, ast.Tuple)):
            parts = node.elts
        elif isinstance(node, ast.Dict):
            parts = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.Call):
            parts = node.args
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.split()
            if all(word.replace(".", "").isidentifier() and word.islower() for word in words):
                yield set(words)
        yield {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def lists_of_ops(package: Path, file: Path) -> Iterator[set[str]]:
    """The collections of at least three op keys, unless the keys are few of many names, or Python's operators."""
    for names in collections(ast.parse(file.read_text())):
        keys = names & KEYS
        if len(keys) >= 3 and len(keys - OPERATORS) >= 2 and 2 * len(keys) >= len(names):
            known = {name for *place, name in OTHER_NAMES if place == [package.name, str(file.relative_to(package))]}
            if not keys & known:
                yield keys


@pytest.mark.parametrize("package", SOURCES, ids=lambda package: package.name)
def test_no_module_outside_the_declarations_lists_ops(package: Path) -> None:
    files = [f for f in package.rglob("*.py") if not {DECLARATIONS, NUMPY} & set(f.parents)]
    found = {str(file): lists for file in files if (lists := [*lists_of_ops(package, file)])}
    assert len(files) > 50
    assert not found, "lists of ops; the names of anything else are in OTHER_NAMES"


def test_the_other_names_are_still_there() -> None:
    for package, file, name in OTHER_NAMES:
        source = next(folder for folder in SOURCES if folder.name == package) / file
        assert any(name in names for names in collections(ast.parse(source.read_text()))), (file, name)


@pytest.mark.parametrize(
    "source",
    [
        'SKIPPED = frozenset({"softmax", "matmul", "cat"})',
        'RULES = {"softmax": 1, "mul": 2, "max.dim": 3, "cat": 4}',
        'NAMES = """\n    softmax max.dim\n    cat stack\n"""',
        'rule("gather", "scatter", "index_add")',
    ],
)
def test_a_list_of_ops_is_found(tmp_path: Path, source: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(source)
    assert [*lists_of_ops(tmp_path, file)]


# Errors that depend on values: the tests read kernels and rules, since no set of calls shows all that may be raised --


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


# Stubs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "text"), (engine_stubs() | client_stubs()).items())
def test_a_stub_is_a_python_file(name: str, text: str) -> None:
    functions = [node for node in ast.walk(ast.parse(text, name)) if isinstance(node, ast.FunctionDef)]
    assert len(functions) > 20 and all(node.returns is not None for node in functions)
    described = {node.name for node in functions if ast.get_docstring(node)}
    assert all(node.name in described or node.name.startswith("__") for node in functions)


def test_the_stub_of_tensors_has_every_method() -> None:
    (text,) = engine_stubs().values()
    stubs = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    methods = {op.name for op in CATALOGUE if op.method and not op.internal}
    assert methods <= stubs
