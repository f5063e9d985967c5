"""``telegrad.testing`` and ``telegrad.utils._pytree`` compared with torch's."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import error_of, same_error

pytestmark = pytest.mark.usefixtures("session")

NAN = float("nan")

# assert_close ----------------------------------------------------------------------------------------

CLOSE: list[Callable[[Any], Any]] = [
    lambda t: (t.tensor([1.0, 2.0]), t.tensor([1.0, 2.000001])),
    lambda t: ([t.tensor([1.0])], (t.tensor([1.0]),)),
    lambda t: ({"a": [1.0, None, True]}, {"a": [1.0, None, True]}),
    lambda t: (np.ones(2), np.ones(2)),
    lambda t: (t.tensor([1.0], requires_grad=True), t.tensor([1.0])),
    lambda t: (t.tensor([]), t.tensor([])),
]
DIFFERENT: list[Callable[[Any], Any]] = [
    lambda t: (t.tensor([1.0, 2.0, 3.0]), t.tensor([1.0, 2.0, 4.0])),
    lambda t: (t.tensor(1.0), t.tensor(2.0)),
    lambda t: (t.tensor([1, 2]), t.tensor([1, 3])),
    lambda t: (t.tensor([1.0]), t.tensor([1.0], dtype=t.float64)),
    lambda t: (t.tensor([1.0]), t.tensor([1.0, 2.0])),
    lambda t: (1.0, 2.0),
    lambda t: (1, 2),
    lambda t: (1, 1.0),
    lambda t: (True, False),
    lambda t: (None, 1),
    lambda t: ("a", "a"),
    lambda t: ([1.0, 2.0], [1.0, 3.0]),
    lambda t: ([1.0], [1.0, 2.0]),
    lambda t: ({"a": 1.0}, {"b": 1.0}),
    lambda t: ({"a": [0, t.tensor([1.0])]}, {"a": [0, t.tensor([2.0])]}),
    lambda t: (t.tensor([1.0, NAN]), t.tensor([1.0, NAN])),
    lambda t: (t.tensor([True, False]), t.tensor([True, True])),
    lambda t: (t.tensor([1.0, float("inf")]), t.tensor([1.0, 1.0])),
    lambda t: (t.tensor([[1.0, 2.0], [3.0, 4.0]]), t.tensor([[1.0, 2.5], [3.0, 5.0]])),
    lambda t: (t.tensor([0.0]), t.tensor([1.0])),
    lambda t: (t.tensor([1.0]), t.tensor([0.0])),
    lambda t: (t.tensor([1.0, 2.0], dtype=t.float16), t.tensor([1.0, 2.1], dtype=t.float16)),
    lambda t: (np.array([1.0]), np.array([2.0])),
    lambda t: (2, t.tensor(2)),
    lambda t: (NAN, NAN),
]


@pytest.mark.parametrize("pair", CLOSE)
def test_close_values_pass(pair: Callable[[Any], Any]) -> None:
    for t in (torch, tg):
        t.testing.assert_close(*pair(t))


@pytest.mark.parametrize("pair", DIFFERENT)
def test_other_values_raise_in_torchs_words(pair: Callable[[Any], Any]) -> None:
    theirs, ours = [error_of(lambda t: t.testing.assert_close(*pair(t)), t) for t in (torch, tg)]
    assert isinstance(ours, AssertionError) == isinstance(theirs, AssertionError)
    assert str(ours).replace("telegrad", "torch").replace("torch.tensor.", "torch.") == str(theirs)


OPTIONS: list[dict[str, Any]] = [
    {"rtol": 0, "atol": 0},
    {"rtol": 0.2, "atol": 0.5},
    {"equal_nan": True},
    {"check_dtype": False},
    {"msg": "another text"},
    {"msg": lambda text: f"before: {text}"},
    {"rtol": 1.0},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_options(options: dict[str, Any]) -> None:
    def run(t: Any) -> str:
        texts = []
        for dtype in (t.float32, t.float64):
            try:
                t.testing.assert_close(t.tensor([1.0, NAN, 3.0]), t.tensor([1.1, NAN, 3.2], dtype=dtype), **options)
            except (AssertionError, ValueError) as error:
                texts.append(f"{type(error).__mro__[-3].__name__}: {error}")
        return "\n".join(texts)

    assert run(tg) == run(torch)


# make_tensor -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["float16", "bfloat16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool"]
)
def test_a_made_tensor_has_numbers_of_the_interval(name: str) -> None:
    def bounds(t: Any, **options: Any) -> Any:
        found = t.testing.make_tensor((50, 40), dtype=getattr(t, name), device="cpu", **options)
        values = np.asarray(found.to(dtype=t.float64).numpy())
        return tuple(found.shape), str(found.dtype).split(".")[-1], round(values.min()), round(values.max())

    assert bounds(tg) == bounds(torch)
    if name != "bool":
        assert bounds(tg, low=2, high=5)[2:] == bounds(torch, low=2, high=5)[2:]


def test_options_of_made_tensors() -> None:
    x = tg.testing.make_tensor(3, 4, dtype=tg.float32, low=0, high=1, requires_grad=True, noncontiguous=True)
    assert x.requires_grad
    assert x.is_leaf
    assert x.shape == (3, 4)
    assert (tg.testing.make_tensor(100, dtype=tg.int64, low=0, high=2, exclude_zero=True).numpy() == 1).all()
    tg.manual_seed(3)
    first = tg.testing.make_tensor(4, dtype=tg.float64).numpy()
    tg.manual_seed(3)
    np.testing.assert_array_equal(tg.testing.make_tensor(4, dtype=tg.float64).numpy(), first)


MAKING: list[Callable[[Any], Any]] = [
    lambda t: t.testing.make_tensor(3, dtype=t.float32, device="cpu", low=2, high=1),
    lambda t: t.testing.make_tensor(3, dtype=t.int64, device="cpu", requires_grad=True),
    lambda t: t.testing.make_tensor(3, dtype=t.float32, device="cpu", low=NAN),
    lambda t: t.testing.make_tensor(3, dtype=t.uint8, device="cpu", low=-5, high=-1),
    lambda t: t.testing.make_tensor(3, dtype="other", device="cpu"),
]


@pytest.mark.parametrize("make", MAKING)
def test_wrong_arguments_raise_as_in_torch(make: Callable[[Any], Any]) -> None:
    same_error(make)


def test_every_public_name_of_testing_is_there() -> None:
    theirs = {name for name in dir(torch.testing) if not name.startswith("_")}
    assert theirs >= set(tg.testing.__all__)
    for name in theirs - set(tg.testing.__all__):
        with pytest.raises(AttributeError, match="not in Telegrad"):
            getattr(tg.testing, name)


# Trees -------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    left: Any
    right: Any


_pytree = tg.utils._pytree
TREE: Any = {
    "b": [1, (2, None)],
    "a": Pair(3, collections.OrderedDict(z=4, y=5)),
    "c": collections.deque([6]),
    "d": collections.defaultdict(list, k=7),
}


def test_trees_are_taken_apart_and_put_together_as_in_torch() -> None:
    theirs, _ = torch.utils._pytree.tree_flatten(TREE)
    ours, spec = _pytree.tree_flatten(TREE)
    assert ours == theirs == _pytree.tree_leaves(TREE)
    assert _pytree.tree_unflatten(ours, spec) == TREE
    assert list(_pytree.tree_unflatten(ours, spec)) == list(TREE)
    double = lambda x: None if x is None else x * 2  # noqa: E731
    assert _pytree.tree_map(double, TREE) == torch.utils._pytree.tree_map(double, TREE)
    only = torch.utils._pytree.tree_map_only(int, str, TREE)
    assert _pytree.tree_map_only(int, str, TREE) == only
    assert _pytree.tree_any(lambda x: x is None, TREE)
    assert not _pytree.tree_all(lambda x: x is None, TREE)
    assert _pytree.tree_all_only(int, lambda x: x > 0, TREE)
    assert _pytree.tree_map(lambda a, b: (a, b), [1, 2], [3, 4]) == [(1, 3), (2, 4)]
    assert _pytree.tree_structure([1, 2]) == _pytree.tree_structure([3, 4]) != _pytree.tree_structure((1, 2))
    paths = [(_pytree.keystr(path), leaf) for path, leaf in _pytree.tree_leaves_with_path({"a": [1, 2]})]
    assert paths == [("['a'][0]", 1), ("['a'][1]", 2)]


def test_a_class_becomes_a_container() -> None:
    class Point:
        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

    _pytree.register_pytree_node(Point, lambda p: ([p.x, p.y], None), lambda leaves, _: Point(*leaves))
    gradient = tg.func.grad(lambda p: (p.x * p.y).sum())(Point(tg.tensor([2.0]), tg.tensor([3.0])))
    assert (gradient.x.item(), gradient.y.item()) == (3.0, 2.0)
