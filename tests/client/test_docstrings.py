"""Every public class and function of the SDK says what it does and takes, and has an example, which is run here."""

from __future__ import annotations

import doctest
import enum
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import telegrad as tg

MODULES = (
    *("", ".aio", ".amp", ".autograd", ".autograd.forward_ad", ".autograd.functional", ".autograd.graph"),
    *(".autograd.profiler", ".cuda", ".func", ".linalg", ".nn", ".nn.attention", ".nn.functional", ".nn.init"),
    *(".nn.utils", ".nn.utils.parametrizations", ".nn.utils.parametrize", ".nn.utils.prune", ".nn.utils.rnn"),
    *(".nn.utils.stateless", ".ops", ".optim", ".optim.lr_scheduler", ".optim.swa_utils", ".profiler", ".random"),
    *(".testing", ".utils.checkpoint", ".utils.data"),
)
ALL_LISTED = ("", ".nn", ".nn.functional", ".linalg")
"""The modules whose ``dir`` lists only public names."""
OF_TORCH = {"size_average", "reduce", "foreach", "fused"}
"""Parameters that torch keeps for old programs, or for kernels of its own, and that change nothing here."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def public_names(path: str) -> list[str]:
    """The public names of a module: those that it lists, or else those that torch's has, too, or that it is for."""
    module = importlib.import_module(f"telegrad{path}")
    names = dir(module) if path in ALL_LISTED else getattr(module, "__all__", None)
    if names is None:
        with suppress(ImportError):
            theirs = importlib.import_module(f"torch{path}")
            return [name for name in dir(module) if hasattr(theirs, name)]
        return [name for name in dir(module) if getattr(getattr(module, name), "__module__", "") == module.__name__]
    return [*names]


def objects() -> Iterator[tuple[str, Any]]:
    """The public classes and functions, and the methods and properties of a tensor, with their names."""
    seen = set()
    for path in MODULES:
        module = importlib.import_module(f"telegrad{path}")
        for name in public_names(path):
            found = None if name.startswith("_") else getattr(module, name, None)
            of_us = str(getattr(found, "__module__", "")).startswith("telegrad") and name != "attribute_of"
            if of_us and (inspect.isroutine(found) or inspect.isclass(found)) and id(found) not in seen:
                seen.add(id(found))
                yield f"telegrad{path}.{name}", found
    for name in dir(tg.Tensor):
        if not name.startswith("_") and hasattr(tg.Tensor, name):
            found = inspect.getattr_static(tg.Tensor, name)
            if inspect.isroutine(found) or isinstance(found, property):
                yield f"telegrad.Tensor.{name}", found


OBJECTS = dict(objects())
BY_NAME = {name.rpartition(".")[2]: found for name, found in OBJECTS.items()}
GROUPS: dict[str, list[str]] = {}
for _name in OBJECTS:
    GROUPS.setdefault(_name.rpartition(".")[0], []).append(_name)


def text_of(found: Any) -> str:
    return inspect.getdoc(found) or ""


def parameters_of(found: Any) -> set[str]:
    """The names of the parameters that a user passes."""
    if isinstance(found, property) or (inspect.isclass(found) and issubclass(found, enum.Enum)):
        return set()
    parameters = inspect.signature(found).parameters.values()
    return {p.name for p in parameters if p.name != "self" and p.name[0] != "_" and p.kind not in ANY} - OF_TORCH


def mentioned(found: Any, depth: int = 2) -> set[str]:
    """The words of a docstring, and of the docstrings of the names that it refers to."""
    text = text_of(found)
    words = set(re.findall(r"\w+", text))
    for other in re.findall(r"`(?:[\w.]+\.)?(\w+)`", text):
        if depth and other in BY_NAME:
            words |= mentioned(BY_NAME[other], depth - 1)
    return words


def texts_of_methods(found: Any) -> Iterator[tuple[str, str]]:
    """The docstrings of the methods and properties of a class, with their names."""
    if inspect.isclass(found) and found is not tg.Tensor:  # whose methods are in OBJECTS
        for name in dir(found):
            member = inspect.getattr_static(found, name)
            if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
                yield name, text_of(member)


def test_the_names_are_there() -> None:
    assert len(OBJECTS) > 1400
    assert {"telegrad.tensor", "telegrad.nn.Conv2d", "telegrad.softmax", "telegrad.Tensor.sum"} <= {*OBJECTS}


def test_everything_says_what_it_does_in_its_first_line() -> None:
    assert not [name for name, found in OBJECTS.items() if not re.match(r"[^\n]+[.:]( |\n|$)", text_of(found))]


def test_every_parameter_is_described() -> None:
    missing = {name: sorted(parameters_of(found) - mentioned(found)) for name, found in OBJECTS.items()}
    assert not {name: names for name, names in missing.items() if names}


def test_everything_has_an_example() -> None:
    assert not [name for name, found in OBJECTS.items() if ">>> " not in text_of(found)]


def test_help_shows_signature_parameters_result_and_example() -> None:
    shown = pydoc.plain(pydoc.render_doc(tg.softmax))
    assert "softmax(input, dim, dtype=None, *, out=None)" in shown
    for part in ("dim (int): The dimension", "Returns:\n", "In PyTorch: ``torch.softmax``.", ">>> tg.softmax("):
        assert part in shown


def test_the_docstrings_of_ops_are_strings() -> None:
    text = tg.softmax.__doc__
    assert isinstance(text, str)
    plain = str(text)
    assert type(plain) is str and "Args:" in text
    assert text == plain and hash(text) == hash(plain) and repr(text) == repr(plain) and f"{text}" == plain
    assert text + "." == plain + "." and len(text) == len(plain) and [*text] == [*plain] and text[:5] == plain[:5]
    assert text.splitlines() == plain.splitlines() and text.encode() == plain.encode()


def test_an_import_reads_no_descriptions() -> None:
    """They are read with the first docstring."""
    code = (
        "import telegrad as tg; from telegrad_engine.schema.descriptions import table; size = table.cache_info;"
        "tg.ones(2).sum().softmax(0); print(size().currsize); tg.softmax.__doc__.strip(); print(size().currsize > 0)"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.split() == ["0", "True"]


@pytest.mark.every
@pytest.mark.parametrize("module", GROUPS)
def test_the_examples_are_true(module: str) -> None:
    """Each docstring is run in a session of its own in this process."""
    seen = {""}
    texts = {name: text_of(OBJECTS[name]) for name in GROUPS[module]}
    for name in GROUPS[module]:
        texts |= {f"{name}.{method}": text for method, text in texts_of_methods(OBJECTS[name])}
    for name, text in texts.items():
        if (examples := text.partition("Examples:")[2]) in seen:
            continue  # methods have the examples of their functions, or of the base class
        seen.add(examples)
        output: list[str] = []
        runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
        test = doctest.DocTestParser().get_doctest(text, {"tg": tg}, name, None, None)
        with warnings.catch_warnings(), tg.connect("local://"):
            runner.run(test, out=output.append)
        assert not runner.failures, "".join(output)
