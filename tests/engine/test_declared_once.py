"""An op's facts are in its declaration: no other module has a list of ops."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator
from pathlib import Path

import pytest

import telegrad
import telegrad_engine
import telegrad_service
from telegrad_engine.schema.op import CATALOGUE

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
    assert not found


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
