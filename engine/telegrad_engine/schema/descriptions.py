"""What the parameters and results of ops, verbs and optimizers mean: the files ``parameters.toml``.

A package that declares some of them has such a file, which holds for its subpackages, too. In it a parameter is
described by name, or by name and kind (``"dim: Ints"``): in the table ``op.KEY`` for one op or overload, in a table
with the name of a module for the ops that it declares, or at the top for the whole package. What no package describes
is in ``schema/parameters.toml``. The files are read when a description is first asked for.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

FILE = "parameters.toml"
EXAMPLES = "examples.toml"
"""The file of a package that has an example of each of its ops: the code, and the lines that it prints."""
RETURNS = "returns"
"""The key of an entry that describes the results of an op."""
Place = tuple[str, ...]
"""Where a description is: the folder of the file, the names of tables, and the key."""


@cache
def table(folder: str, name: str = FILE) -> dict[str, Any]:
    """The table in the file of this name in a folder; an empty one if there is no such file."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        return {}


@cache
def folders(package: str) -> list[str]:
    """The folders whose tables hold for a package, its own first."""
    found = []
    while package:
        found.append(os.path.dirname(str(sys.modules[package].__file__)))
        package = package.rpartition(".")[0]
    return [*found, os.path.dirname(__file__)]


def entries(module: str, keys: Sequence[str], name: str, kind: str = "") -> Iterator[tuple[Place, str]]:
    """The places of the descriptions of a parameter, and their texts; the one that holds is first.

    ``module`` is the name of the module that declares the op, and ``keys`` are the op's key and name.
    """
    package, _, family = module.rpartition(".")
    tables: list[Place] = []
    for folder in folders(package):
        tables += [*((folder, "op", key) for key in keys), (folder, family), (folder,)]
    for place in dict.fromkeys(tables):
        found: Any = table(place[0])
        for part in place[1:]:
            found = found.get(part, {}) if isinstance(found, dict) else {}
        for key in (f"{name}: {kind}", name) if kind else (name,):
            if isinstance(found, dict) and isinstance(text := found.get(key), str):
                yield (*place, key), text


def describe(module: str, keys: Sequence[str], name: str, kind: str = "") -> str:
    """The description of a parameter; "" if there is none. See :func:`entries`."""
    return next((text for _, text in entries(module, keys, name, kind)), "")


def example(module: str, keys: Sequence[str]) -> list[str]:
    """The example of an op, as a session of Python has it; an empty list if there is none."""
    examples = table(folders(module.rpartition(".")[0])[0], EXAMPLES)
    code, *printed = next((examples[key] for key in keys if key in examples), [""])
    return [f">>> {code}", *printed] if code else []
