"""The pages about the SDK, one for each module; mkdocstrings fills in signatures and docstrings."""

from __future__ import annotations

import importlib
import inspect
from collections import defaultdict
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from .markdown import joined, prose, summary

SDK = "reference/sdk"
MODULES = {
    "telegrad": "telegrad: tensors, sessions, modes",
    "telegrad.nn.functional": "nn.functional",
    "telegrad.nn.init": "nn.init",
    "telegrad.nn.utils": "nn.utils",
    "telegrad.nn.utils.parametrizations": "nn.utils.parametrizations",
    "telegrad.nn.utils.parametrize": "nn.utils.parametrize",
    "telegrad.nn.utils.prune": "nn.utils.prune",
    "telegrad.nn.utils.rnn": "nn.utils.rnn",
    "telegrad.optim": "optim",
    "telegrad.optim.lr_scheduler": "optim.lr_scheduler",
    "telegrad.optim.swa_utils": "optim.swa_utils",
    "telegrad.autograd": "autograd",
    "telegrad.autograd.forward_ad": "autograd.forward_ad",
    "telegrad.autograd.functional": "autograd.functional",
    "telegrad.autograd.graph": "autograd.graph",
    "telegrad.autograd.profiler": "autograd.profiler",
    "telegrad.func": "func",
    "telegrad.ops": "ops",
    "telegrad.amp": "amp",
    "telegrad.aio": "aio",
    "telegrad.cuda": "cuda",
    "telegrad.notebook": "notebook",
    "telegrad.profiler": "profiler",
    "telegrad.random": "random",
    "telegrad.serialization": "serialization",
    "telegrad.testing": "testing",
    "telegrad.utils.checkpoint": "utils.checkpoint",
    "telegrad.utils.data": "utils.data",
}
"""The public modules, with the titles of their pages. The layers of ``nn`` have pages of their own, one a file."""
SHADOWED = {"telegrad.tensor"}
"""Functions with the name of a package, which is what the tool finds."""
CATALOGUE_NOTE = """The ops of the [catalogue](../ops/index.md) are functions of this module too, under PyTorch's
names, as far as PyTorch has them here."""
WITH_OPS = {"telegrad", "telegrad.nn.functional"}


def sdk_pages() -> dict[str, str]:
    """The pages, with the navigation of their folder."""
    pages = {}
    titles = [("By module", "index.md")]
    for name, title in MODULES.items():
        module = importlib.import_module(name)
        own = public_names(module)
        path = f"{title.split(':')[0]}.md"
        note = CATALOGUE_NOTE if name in WITH_OPS else ""
        pages[f"{SDK}/{path}"] = page(f"`{name}`", module.__doc__ or "", note, [f"{name}.{each}" for each in own])
        titles.append((title, path))
        if name == "telegrad":
            titles += layer_pages(pages)
    pages[f"{SDK}/index.md"] = joined(
        "# The SDK",
        "The package `telegrad` has PyTorch's names. What is missing, and why, is on the page "
        "[what is covered](../../explanation/coverage.md); every op is on the pages about [ops](../ops/index.md).",
        "\n".join(f"- [{title}]({path})" for title, path in titles[1:]),
    )
    pages[f"{SDK}/SUMMARY.md"] = summary(titles)
    return pages


def layer_pages(pages: dict[str, str]) -> list[tuple[str, str]]:
    """Add the pages about the layers of ``nn``; their titles and paths."""
    from telegrad import nn

    by_file: dict[str, list[str]] = defaultdict(list)
    for name, kind in sorted(vars(nn).items()):
        if isinstance(kind, type) and kind.__module__.startswith("telegrad.nn"):
            by_file[source_module(kind).rpartition(".")[2]].append(name)
    titles = []
    for file, names in sorted(by_file.items(), key=lambda item: (item[0] != "module", item[0])):
        path = f"nn.{file}.md"
        docstring = importlib.import_module(source_module(getattr(nn, names[0]))).__doc__ or ""
        pages[f"{SDK}/{path}"] = page(
            f"`telegrad.nn`: {file}", docstring, "", [f"telegrad.nn.{name}" for name in names]
        )
        titles.append((f"nn: {file}", path))
    return titles


def page(title: str, docstring: str, note: str, paths: Iterable[str]) -> str:
    """The page about a module, or a part of one."""
    return joined(f"# {title}", prose(docstring.split("\n\n")[0]), note, *(f"::: {path}" for path in paths))


def public_names(module: ModuleType) -> list[str]:
    """The functions and classes of a module that its source defines or imports for its users."""
    listed = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__
    ]
    names = [name for name in listed if not name.startswith("_") and is_written(name, getattr(module, name))]
    return sorted((name for name in names if f"{module.__name__}.{name}" not in SHADOWED), key=str.lower)


def is_written(name: str, value: Any) -> bool:
    """Whether a function or class is in a source under this name, not made from the catalogue."""
    if not (inspect.isclass(value) or inspect.isfunction(value)) or not value.__module__.startswith("telegrad"):
        return False
    try:
        source = inspect.getsource(value)
    except (OSError, TypeError):
        return False
    return any(f"{keyword} {name}" in source for keyword in ("def", "class"))


def source_module(kind: type) -> str:
    """The module in whose file a class is."""
    path = inspect.getsourcefile(kind) or ""
    return "telegrad" + path.rpartition("telegrad")[2].removesuffix(".py").replace("/", ".")
