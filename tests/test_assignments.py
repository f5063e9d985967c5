"""A module changes only its own functions and classes, and an object's attributes are set by name.

What another module's function does, or a class or an instance has, is then found where it is written.
"""

from __future__ import annotations

import ast
import importlib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .test_imports import PACKAGES, modules

MODULES = {name: path for package in PACKAGES for name, path in modules(package).items()}
WRITES = {"clear", "pop", "popitem", "setdefault", "update"}
"""The methods that change a dictionary."""
ALLOWED = {
    "telegrad_service.observability.logs": "Python calls the functions that these attributes of sys and threading name",
}
"""The modules that may set attributes of others, with the reason."""


def imported(module: str, path: Path, tree: ast.Module) -> dict[str, tuple[str, str | None]]:
    """What each name that is imported anywhere in a module stands for: a module, and an attribute of it if any."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: dict[str, tuple[str, str | None]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0],
                    None,
                )
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                found[alias.asname or alias.name] = source, alias.name
    return found


def is_definition(source: str, name: str | None, rest: list[str]) -> bool:
    """Whether an imported name, or an attribute of it, is a module, a class or a function, not an object of a class."""
    try:
        value: Any = importlib.import_module(source)
        if name is not None:
            value = getattr(value, name) if hasattr(value, name) else importlib.import_module(f"{source}.{name}")
        for attribute in rest:
            value = getattr(value, attribute)
    except (ImportError, AttributeError):
        return False
    return isinstance(value, (type, types.ModuleType, types.FunctionType))


def changed(tree: ast.Module) -> Iterator[tuple[int, ast.expr]]:
    """The line of each assignment to an attribute or deletion of one, and the object that it changes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield node.lineno, node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
            yield node.lineno, node.args[0]


def foreign(module: str, path: Path, tree: ast.Module) -> Iterator[str]:
    """The assignments to attributes of modules, classes and functions that a module imports."""
    names = imported(module, path, tree)
    for line, target in changed(tree):
        if isinstance(target, ast.Subscript) and ast.unparse(target.value).endswith("sys.modules"):
            yield f"{module}:{line}: {ast.unparse(target)}"
        rest: list[str] = []
        part = target
        while isinstance(part, ast.Attribute):
            rest.insert(0, part.attr)
            part = part.value
        if isinstance(part, ast.Name) and part.id in names and is_definition(*names[part.id], rest):
            yield f"{module}:{line}: {ast.unparse(target)}"


def is_namespace(node: ast.AST) -> bool:
    """Whether an expression is another object's dictionary of attributes; a method may use that of its own object."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return ast.unparse(node.value) != "self"
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "vars" and node.args:
        return ast.unparse(node.args[0]) != "self"
    return False


def through_namespaces(module: str, tree: ast.Module) -> Iterator[str]:
    """The changes of other objects through their dictionaries of attributes."""
    for node in ast.walk(tree):
        if (isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and is_namespace(node.value)) or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in WRITES
            and is_namespace(node.func.value)
        ):
            yield f"{module}:{node.lineno}: {ast.unparse(node)}"


def scans(module: str, tree: ast.Module) -> Iterator[str]:
    """The uses of all objects of the process."""
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.name if isinstance(node, ast.alias) else None
        if name in ("get_objects", "get_referrers"):
            yield f"{module}: {name}"


def found(module: str, path: Path, source: str | None = None) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8") if source is None else source)
    others = [] if module in ALLOWED else foreign(module, path, tree)
    return [*others, *through_namespaces(module, tree), *scans(module, tree)]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_changes_only_what_it_defines(package: str) -> None:
    assert [each for module, path in modules(package).items() for each in found(module, path)] == []


BROKEN = [
    "import telegrad.tape.recorder as r\ndef f(): r.monotonic = None",
    "from telegrad.tape import recorder\ndef f(): recorder.Recorder.emit = None",
    "from ..tape.recorder import Recorder\nRecorder.emit = None",
    "from ..tape.recorder import Recorder\ndef f(): setattr(Recorder, 'emit', None)",
    "def f():\n    from ..tensor import handle\n    handle.apply_spec = None",
    "import sys\ndef f(): sys.modules['telegrad'].x = 1",
    "def f(session): vars(session)['_execute'] = None",
    "def f(session): del session.__dict__['_execute']",
    "def f(recorder): vars(recorder).update(emit=None)",
    "import gc\ndef f(): return gc.get_objects()",
    "from gc import get_objects",
]
SOUND = [
    "from telegrad_engine.context import state\ndef f(): state.grad_enabled = True",
    "class A:\n    def f(self): self.__dict__['x'] = 1",
    "class A: pass\nA.kind = A",
    "def f(cls): cls.x = 1",
    "def f(x): return vars(x)['y']",
]


@pytest.mark.parametrize("source", BROKEN)
def test_such_changes_are_found(source: str) -> None:
    assert found("telegrad.tape.example", Path("example.py"), source)


@pytest.mark.parametrize("source", SOUND)
def test_others_are_not(source: str) -> None:
    assert not found("telegrad.tape.example", Path("example.py"), source)


def test_exceptions_are_needed() -> None:
    for module in ALLOWED:
        path = MODULES[module]
        assert list(foreign(module, path, ast.parse(path.read_text(encoding="utf-8"))))
