"""No module imports one that imports it, be it by way of others, inside of a function or for type checkers alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {"telegrad_engine": "engine", "telegrad": "client", "telegrad_service": "service"}


def modules(package: str) -> dict[str, Path]:
    """The files of a distribution's modules, by their names."""
    top = ROOT / PACKAGES[package]
    found = {}
    for path in (top / package).rglob("*.py"):
        parts = path.relative_to(top).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: Path) -> Iterator[str]:
    """Everything that a module's file imports, as dotted names."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from [f"{base}.{alias.name}" for alias in node.names]


def graph(package: str) -> dict[str, set[str]]:
    """The modules that each module imports. A package that contains it is left out: Python imports that first."""
    files = modules(package)
    found: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for target in imported(name, path):
            while target and target not in files:
                target = target.rpartition(".")[0]
            if target and target != name and not name.startswith(f"{target}."):
                found[name].add(target)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_itself(package: str) -> None:
    try:
        TopologicalSorter(graph(package)).prepare()
    except CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]))
