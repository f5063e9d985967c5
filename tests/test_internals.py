"""Tests use public names. One that uses others says why, in the part of its docstring that starts with "Internals:"."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch

TESTS = Path(__file__).parent
DOCUMENTED = {
    "telegrad_engine.context",
    "telegrad_engine.devices",
    "telegrad_engine.dtypes",
    "telegrad_engine.errors",
    "telegrad_engine.instrumentation",
    "telegrad_engine.schema.op",
    "telegrad_engine.schema.parameters",
    "telegrad_engine.session.session",
    "telegrad_service.app",
    "telegrad_service.cli",
    "telegrad_service.launch",
    "telegrad_service.server",
    "telegrad_service.settings",
}
"""The modules that docs/maintainers/engine.md, docs/how-to/functions.md and docs/maintainers/extending.md explain, and
those that start a server."""
PROTOCOLS = {"_asdict", "_fields", "_metadata", "_replace", "_repr_html_"}
"""Public names of named tuples, of Jupyter, and of torch's state dicts."""
OF_TORCH = (torch.Tensor, torch.nn.Module(), torch.autograd.forward_ad, torch.utils)
"""Objects of torch's whose names with an underscore Telegrad has too."""


def is_public(module: str, name: str) -> bool:
    """Whether a package lists the name as its own, or, where there is no list, the module is public."""
    names = listed(module)
    if name in names or name.startswith("__"):
        return True
    is_module = hasattr(import_module(module), "__path__") and find_spec(f"{module}.{name}") is not None
    return is_public_module(f"{module}.{name}") if is_module else not names and is_public_module(module)


def is_public_module(module: str) -> bool:
    """Whether the module is documented, listed by its package, a package with a list of its own, or one of torch's."""
    package, _, name = module.rpartition(".")
    return module in DOCUMENTED or bool(listed(module)) or name in listed(package) or is_torchs(module)


def listed(package: str) -> list[str]:
    """The names that a package says are public; none for a plain module."""
    found = import_module(package) if package else None
    return found.__all__ if hasattr(found, "__path__") and hasattr(found, "__all__") else []


def is_torchs(module: str) -> bool:
    package, _, rest = module.partition(".")
    try:
        return package == "telegrad" and find_spec(f"torch.{rest}") is not None
    except ModuleNotFoundError:
        return False


@cache
def files() -> dict[Path, ast.Module]:
    """The trees of all files. To read them takes seconds, so only the test itself does."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(TESTS.rglob("*.py"))}


@cache
def own_names() -> set[str]:
    """The names that tests define, in classes of their own too."""
    found = set()
    for node in [node for tree in files().values() for node in ast.walk(tree)]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def internals(tree: ast.Module) -> Iterator[str]:
    """The names that a test imports from modules that are not public, and those with an underscore that it uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("telegrad"):
            yield from [f"{node.module}.{a.name}" for a in node.names if not is_public(node.module or "", a.name)]
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not is_known(node):
            yield ast.unparse(node)


def is_known(node: ast.Attribute) -> bool:
    """Whether a name with an underscore is the test's own, Python's, or one that torch has too."""
    if node.attr.startswith(("__", "_saved")) or ast.unparse(node).startswith(("self.", "cls.", "torch.")):
        return True
    return node.attr in own_names() | PROTOCOLS or any(hasattr(of, node.attr) for of in OF_TORCH)


def test_a_test_that_uses_internals_says_why() -> None:
    silent, needless = {}, []
    for path, tree in files().items():
        name, found = str(path.relative_to(TESTS)), sorted(set(internals(tree)))
        says = "Internals: " in (ast.get_docstring(tree) or "")
        if found and not says:
            silent[name] = found
        elif says and not found:
            needless.append(name)
    assert not silent, "use public names, or say why these are needed"
    assert not needless, "these use only public names"
