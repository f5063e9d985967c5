"""The names of torch that Telegrad has, counted by namespace; ``telegrad.exclusions`` lists omitted ones.

``pytest tests/client/test_names.py -s`` prints the table.

Internals: the table of excluded names is what is checked.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import warnings
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import pytest
import torch
import torch.backends.xnnpack
import torch.nn.utils.prune

import telegrad as tg
from telegrad import exclusions

BARS = {
    "": 0.85,
    "Tensor": 0.95,
    "linalg": 0.65,
    "optim.lr_scheduler": 1.0,
    "autograd.functional": 1.0,
    "backends": 1.0,
    "random": 1.0,
    "nn": 1.0,
    "nn.functional": 1.0,
    "nn.utils": 1.0,
    "optim": 1.0,
    "optim.swa_utils": 1.0,
    "func": 1.0,
    "autograd.graph": 1.0,
    "autograd.forward_ad": 1.0,
}
"""The share of each namespace's names in scope that must be present; "" is torch itself."""


LEFT_OUT = {
    **dict.fromkeys(["nn.functional", "nn.init", "nn.parameter", "nn.attention", "utils.data"], ""),
    **dict.fromkeys(["nn.utils.parametrize", "nn.utils.parametrizations", "optim.lr_scheduler", "optim.swa_utils"], ""),
    "nn.utils": "stateless",
    "nn.utils.prune": "ABC Iterable abstractmethod",
    "nn.utils.rnn": "PackedSequence_ bind copy_method_params",
    "nn.Module": "T_destination ipu mtia xpu cuda compile",
    "optim.Optimizer": "OptimizerPreHook OptimizerPostHook profile_hook_step",
    "optim.lr_scheduler.LRScheduler": "",
}
"""Names that are missing without an exclusion: internals of torch, and other devices."""


class Row(NamedTuple):
    """One namespace: torch's public names, and which of them are present or excluded."""

    namespace: str
    names: list[str]
    present: list[str]
    excluded: list[str]

    @property
    def missing(self) -> list[str]:
        """The names in scope that are missing."""
        gone = {*self.present, *self.excluded}
        return [name for name in self.names if name not in gone]

    @property
    def share(self) -> float:
        """The share of the names in scope that are present."""
        scope = len(self.names) - len(self.excluded)
        return 1 - len(self.missing) / scope

    def __str__(self) -> str:
        name = f"torch.{self.namespace}".rstrip(".")
        counts = f"{len(self.names):5} {len(self.present):8} {len(self.excluded):9} {len(self.missing):8}"
        return f"{name:28}{counts} {self.share:8.1%}"


HEAD = f"{'namespace':28}{'names':>5} {'present':>8} {'excluded':>9} {'missing':>8} {'of scope':>8}"


def namespaces(namespace: str) -> tuple[Any, Any]:
    """The namespace in torch and in Telegrad; None if Telegrad does not have it."""
    if namespace == "Tensor":
        return torch.Tensor, tg.Tensor
    theirs = importlib.import_module(f"torch.{namespace}".rstrip("."))
    ours: Any = tg
    for part in namespace.split("."):
        ours = getattr(ours, part, None) if part else ours
    return theirs, ours


def public(namespace: str, module: Any) -> list[str]:
    """torch's public names: a submodule's ``__all__`` if it has one, else all names without a leading underscore."""
    listed = None if namespace in ("", "Tensor") else getattr(module, "__all__", None)
    return sorted(name for name in (dir(module) if listed is None else listed) if not name.startswith("_"))


def row(namespace: str) -> Row:
    theirs, ours = namespaces(namespace)
    names = public(namespace, theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        present = [name for name in names if ours is not None and hasattr(ours, name)]
    excluded = [name for name in names if name not in present and not is_in_scope(namespace, name)]
    return Row(namespace, names, present, excluded)


def is_in_scope(namespace: str, name: str) -> bool:
    found = exclusions.TABLE.get((namespace, name))
    return found is None or found.in_scope


@pytest.mark.parametrize("namespace", BARS, ids=lambda name: name or "torch")
def test_as_many_names_as_promised(namespace: str) -> None:
    found = row(namespace)
    print(f"\n{HEAD}\n{found}\n  missing: {' '.join(found.missing)}")
    assert found.share >= BARS[namespace], found.missing


@pytest.mark.parametrize("namespace", BARS, ids=lambda name: name or "torch")
def test_every_missing_name_says_why(namespace: str) -> None:
    theirs, ours = namespaces(namespace)
    for name in public(namespace, theirs):
        if hasattr(ours, name):
            continue
        target = tg.ones(1) if namespace == "Tensor" else ours
        with pytest.raises(AttributeError, match=r"not in Telegrad( yet)? \(.+\)\. Use instead: .+") as raised:
            getattr(target, name)
        assert "did you mean" not in str(raised.value)


def test_the_list_of_exclusions_is_true() -> None:
    for namespace, name in exclusions.TABLE:
        theirs, ours = namespaces(namespace)
        known = name in dir(theirs) or name in public(namespace, theirs)
        path = f"torch.{namespace}.{name}" if namespace else f"torch.{name}"
        assert known or importlib.util.find_spec(path), path  # a submodule that is not imported yet
        if ours is not None:
            assert not hasattr(ours, name), f"telegrad.{namespace}.{name} is there: take it off the list"


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(namespace) for namespace in BARS]
    with capsys.disabled():
        print("\n" + "\n".join([HEAD, *map(str, rows)]))
    assert all(found.names for found in rows)


@pytest.mark.full
@pytest.mark.parametrize("path", LEFT_OUT)
def test_what_torch_defines_is_there(path: str) -> None:
    """This includes names that are not in ``__all__``, and the methods of classes."""
    theirs, ours = attrgetter(path)(torch), attrgetter(path)(tg)
    is_class = isinstance(theirs, type)
    names = {name for name in dir(theirs) if not name.startswith("_")} if is_class else names_of(theirs)
    missing = {name for name in names if not hasattr(ours, name)}
    assert missing - {name for namespace, name in exclusions.TABLE if namespace == path} <= set(LEFT_OUT[path].split())


def names_of(module: Any) -> set[str]:
    """The public names of a torch module that torch itself defines."""
    listed = getattr(module, "__all__", None) or [n for n, v in vars(module).items() if not inspect.ismodule(v)]
    defined = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
    names = {name for name in [*listed, *defined] if not name.startswith("_") and hasattr(module, name)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {n for n in names if str(getattr(getattr(module, n), "__module__", "torch")).startswith("torch")}


OTHER_SIGNATURES = {
    "nn": {
        *("GRU", "LSTM", "RNN", "NLLLoss2d", "Sequential"),  # explicit here, *args in torch
        "Container",
    },
    "optim": set(),
    "nn.init": set(),
    "nn.utils": set(),
}


@pytest.mark.full
@pytest.mark.parametrize("namespace", OTHER_SIGNATURES)
def test_constructors_and_functions_have_torchs_parameters(namespace: str) -> None:
    theirs, ours = (importlib.import_module(f"{lib}.{namespace}") for lib in ("torch", "telegrad"))
    different = set()
    for name in names_of(theirs):
        function = getattr(theirs, name, None)
        if not callable(function) or not hasattr(ours, name) or (name.rstrip("_") != name and namespace != "nn.init"):
            continue
        try:
            wanted = inspect.signature(function).parameters
        except ValueError:  # written in C
            continue
        if any(p.kind is p.VAR_POSITIONAL for p in wanted.values()) and namespace == "nn.init":
            continue  # a deprecated name
        found = inspect.signature(getattr(ours, name)).parameters
        if [(p.name, p.kind) for p in found.values()] != [(p.name, p.kind) for p in wanted.values()]:
            different.add(name)
    assert different == OTHER_SIGNATURES[namespace]


@pytest.mark.parametrize(
    ("access", "reason", "instead"),
    [
        (lambda: tg.jit, "TorchScript", "telegrad.compile"),
        (lambda: tg.distributed, "distributed", "session"),
        (lambda: tg.sparse_coo_tensor, "sparse", "dense"),
        (lambda: tg.quantize_per_tensor, "quantization", "bfloat16"),
        (lambda: tg.cuda.Stream, "streams", "synchronize"),
        (lambda: tg.nn.DataParallel, "distributed", "session"),
        (lambda: tg.linalg.eig, "complex", "real tensors"),
        (lambda: tg.ones(1).untyped_storage, "storages", "views"),  # type: ignore[attr-defined]
        (lambda: tg.ones(1).to_sparse(), "sparse", "dense"),  # type: ignore[attr-defined]
        (lambda: tg.backends.miopen, "one library", "without the prefix"),
    ],
)
def test_a_name_left_out_says_why_and_what_to_use(access: Callable[[], Any], reason: str, instead: str) -> None:
    with pytest.raises(AttributeError, match="has no attribute") as raised:
        access()
    assert reason in str(raised.value)
    assert instead in str(raised.value)


def test_a_name_that_torch_has_not_is_still_guessed_at() -> None:
    with pytest.raises(AttributeError, match="did you mean matmul"):
        tg.matmull  # noqa: B018
    with pytest.raises(AttributeError, match="nothing"):
        tg.linalg.nothing  # noqa: B018
    assert set(dir(tg.linalg)) <= set(dir(torch.linalg))
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute 'foo'$"):
        tg.ones(1).foo  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(tg.ones(1), "foo")
