"""Tensors on a device other than the CPU: the same semantics as torch's, whatever the library's arrays can do.

On a stand-in for a GPU (tests/fake_gpu), unless ``--device`` names a device. The ops themselves are compared with torch
by ``test_ops.py --device``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import telegrad_engine as tg
from telegrad_engine.arrays import NUMPY, make_backend, resolve
from telegrad_engine.devices import on
from telegrad_engine.errors import InvalidOperation, InvalidValue, TooLarge
from telegrad_engine.optim import algorithms as optim
from telegrad_engine.program import Instruction
from telegrad_engine.session.session import Session

from .. import fake_gpu
from .twins import both, both_raise


@pytest.fixture(autouse=True)
def place(device: str) -> Iterator[str]:
    with nullcontext() if device != "cpu" else fake_gpu.installed():
        name = resolve("cuda:1" if device == "cpu" else device)
        with on(name):
            yield name


# Views and writes -----------------------------------------------------------------------------


def matrix(t: Any) -> Any:
    return t.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def a_write_shows_in_views(t: Any) -> Any:
    x = matrix(t)
    views = [x[0], x.t(), x.t()[1:], x.reshape(6), x.detach(), x.unsqueeze(0), x.expand(2, 2, 3), *x.split(1)]
    x.mul_(2.0)
    return x, views, [v._version for v in views]


def a_write_to_a_view_shows_in_its_base(t: Any) -> Any:
    x = matrix(t)
    flat, column = x.reshape(6), x.t()[1]
    column.add_(10.0)
    flat[1:3] = t.tensor([7.0, 8.0])
    x.detach().t()[0].zero_()
    return x, flat, column, x._version


def a_view_of_a_view(t: Any) -> Any:
    x = matrix(t)
    inner = x[1:].t()[1:]
    x[1, 2] = 60.0
    inner.mul_(-1.0)
    return x, inner


def a_copy_is_no_view(t: Any) -> Any:
    x = matrix(t)
    copies = [x.t().reshape(6), x.clone(), x + 0, x.t().contiguous(), x[t.tensor([0, 1])]]
    x.zero_()
    return copies


def contiguous_is_the_tensor_itself(t: Any) -> Any:
    x = matrix(t)
    same = x.contiguous()
    x.zero_()
    return same, x.contiguous() is x, x.t().contiguous() is x


def indexed_writes(t: Any) -> Any:
    x = matrix(t)
    x[0, ::2] = 9.0
    x[x > 8.0] = -1.0
    x[t.tensor([1, 1]), t.tensor([0, 2])] = t.tensor([70.0, 80.0])
    x[:, 1] += 0.5
    return x, x._version


def integers_keep_their_dtype(t: Any) -> Any:
    x = t.tensor([1, 2, 3])
    x[1:].add_(5)
    return x, str(x.dtype).rpartition(".")[2]


def gradients_through_writes(t: Any) -> Any:
    a = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
    b = a * 2
    part = b[1:]
    part.mul_(a[:2])
    b[0] = a[2] * a[2]
    (b * b).sum().backward()
    return a.grad, b, part, part.requires_grad


def a_write_under_no_grad(t: Any) -> Any:
    a = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with t.no_grad():
        a[1:].mul_(10.0)
        a -= 1.0
    (a * a).sum().backward()
    return a.grad, a.is_leaf


def accumulation_is_in_place(t: Any) -> Any:
    a = t.tensor([1.0, 2.0], requires_grad=True)
    (a * a).sum().backward()
    first, view = a.grad, a.grad[1:]
    (a * 3.0).sum().backward()
    return first, view, a.grad is first


def second_derivatives(t: Any) -> Any:
    a = t.tensor([1.0, 2.0], requires_grad=True)
    (g,) = t.autograd.grad((a**3).sum(), a, create_graph=True)
    return t.autograd.grad(g.sum(), a)


def hooks(t: Any) -> Any:
    a = t.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    b = a * 2
    b.register_hook(lambda g: seen.append(g.clone()) or g * 10)
    b.retain_grad()
    b.sum().backward()
    return seen, a.grad, b.grad


SEMANTICS = [
    a_write_shows_in_views,
    a_write_to_a_view_shows_in_its_base,
    a_view_of_a_view,
    a_copy_is_no_view,
    contiguous_is_the_tensor_itself,
    indexed_writes,
    integers_keep_their_dtype,
    gradients_through_writes,
    a_write_under_no_grad,
    accumulation_is_in_place,
    second_derivatives,
    hooks,
]


@pytest.mark.parametrize("program", SEMANTICS, ids=lambda f: f.__name__)
def test_semantics(program: Callable[[Any], Any]) -> None:
    both(program)


def changed_after_saving(t: Any) -> Any:
    a = t.tensor([1.0, 2.0], requires_grad=True)
    b = a * 2
    c = b * b
    b[0] = 5.0
    c.sum().backward()


def write_to_a_leaf(t: Any) -> Any:
    t.tensor([1.0], requires_grad=True)[0] = 2.0


def write_to_repeated_elements(t: Any) -> Any:
    matrix(t)[:1].expand(2, 3).add_(1.0)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (changed_after_saving, "modified by an inplace operation"),
        (write_to_a_leaf, "a view of a leaf Variable that requires grad"),
        (write_to_repeated_elements, "refers to a single memory location"),
    ],
)
def test_errors(program: Callable[[Any], Any], words: str) -> None:
    both_raise(program, words)


# Where values are ------------------------------------------------------------------------------


def test_a_tensor_knows_its_device(place: str) -> None:
    x = tg.tensor([1.0])
    assert (x.device, (x * 2).device, x.grad, x.numpy().tolist()) == (place, place, None, [1.0])
    assert repr(x) == "tensor([1.])"
    assert x.to(place) is x
    with pytest.raises(InvalidOperation, match="not available"):
        x.to("tpu")


def test_devices_do_not_mix(place: str) -> None:
    here = tg.tensor([1.0])
    with on("cpu"):
        there = tg.tensor([1.0])
    with pytest.raises(InvalidOperation, match=f"at least two devices, {place} and cpu!"):
        here + there
    with pytest.raises(InvalidOperation, match="same device"):
        here.add_(there)


def test_a_seed_gives_the_same_numbers_everywhere(place: str) -> None:
    def numbers(device: str) -> list[Any]:
        with on(device):
            tg.manual_seed(3)
            drawn = [tg.functions.randn((4,)), tg.functions.rand((2, 2)), tg.functions.randint(0, 9, (5,))]
            return [x.tolist() for x in [*drawn, tg.functions.bernoulli(tg.tensor([0.5] * 8))]]

    assert numbers(place) == numbers("cpu")


def test_an_unknown_device() -> None:
    with pytest.raises(InvalidValue, match="known: cpu, cuda, gpu"):
        make_backend("abacus")


def test_a_missing_library_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(InvalidOperation, match=r"telegrad-engine\[cupy\]"):
        make_backend("cuda")


# Writes of kernels -----------------------------------------------------------------------------


def neighbours(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """What is somewhere at first, and four values that come there: the dtype's extremes, NaN, and all but the same."""
    kind = tg.dtypes.parse(dtype).numpy
    if dtype == "bool":
        return np.array([False, True, False]), np.array([True, False, True, False])
    if kind.kind in "iu":
        least, most = np.iinfo(kind).min, np.iinfo(kind).max
        return np.array([least + 1, most - 1, 3], kind), np.array([least, most - 2, most, 5], kind)
    step = float(ml_dtypes.finfo(kind).eps)
    start, values = [-1, 1, np.nan, -np.inf], [-1 - step, 1 - step, 1 + step, -2]
    return np.array(start).astype(kind), np.array(values).astype(kind)


EVERY = ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("how", ["maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["bool", *EVERY])
def test_extrema_at_repeated_places(place: str, dtype: str, how: str) -> None:
    there, (first, second) = make_backend(place), neighbours(dtype)
    for at in ([0, 1, 1, 1], [1, 0, 0, 2], [2, 2, 2, 0], [1, 2, 0, 1]):
        for start, values in ((first, second), (second, first)):
            places = np.array(at[: len(values)])
            expected = NUMPY.index_combine(start, places, values, how)
            given = [there.upload(array) for array in (start, places, values)]
            found = there.download(there.index_combine(*given, how))
            assert found.dtype == expected.dtype
            if dtype == "bfloat16":  # NumPy does not know what its NaN is
                found, expected = found.astype(np.float32), expected.astype(np.float32)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", EVERY)
def test_sums_at_repeated_places(place: str, dtype: str) -> None:
    there, kind = make_backend(place), tg.dtypes.parse(dtype).numpy
    start, values, places = np.array([100, 3]).astype(kind), np.array([20, 30, 60]).astype(kind), np.array([0, 1, 0])
    found = there.index_add(*[there.upload(array) for array in (start, places, values)])
    np.testing.assert_array_equal(there.download(found), NUMPY.index_add(start, places, values))


# Sessions --------------------------------------------------------------------------------------


def run(session: Session, *instructions: tuple[Any, ...]) -> dict[str, Any]:
    answer = session.run([Instruction(*i) for i in instructions])
    return {name: value.array for name, value in answer.values.items()}


def upload(name: str, values: Any, **attrs: Any) -> tuple[Any, ...]:
    return ("tensor", [], [name], {"data": np.asarray(values, np.float32), **attrs})


def train(device: str, algorithm: str, settings: dict[str, Any]) -> dict[str, Any]:
    """A linear model fitted to four points, three steps; its parameters and loss."""
    session = Session(device=device, seed=1)
    states = optim.get(algorithm).states
    names = [[f"{state}.{p}" for p in "wb"] for state in states]
    shapes: list[tuple[str, tuple[int, ...]]] = [("w", (2, 1)), ("b", (1,))]
    run(
        session,
        upload("x", [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [2.0, 1.0]]),
        upload("y", [[1.0], [2.0], [3.0], [5.0]]),
        upload("w", [[0.1], [0.2]], requires_grad=True),
        upload("b", [0.0], requires_grad=True),
        *[upload(f"{s}.{p}", np.zeros(optim.state_shape(s, shape))) for s in states for p, shape in shapes],
    )
    for step in range(3):
        fetched = run(
            session,
            ("zero_grad", [("w", "b")], [], {"set_to_none": step != 1}),
            ("matmul", ["x", "w"], ["xw"]),
            ("add", ["xw", "b"], ["out"]),
            ("mse_loss", ["out", "y"], ["loss"]),
            ("backward", [("loss",)], []),
            ("optim_step", [("w", "b"), tuple(map(tuple, names))], [], {"algorithm": algorithm, "settings": settings}),
            ("fetch", [("w", "b", "loss")]),
            ("free", [("xw", "out", "loss")]),
        )
    return fetched


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("sgd", {"lr": 0.1}),
        ("sgd_momentum", {"lr": 0.1, "nesterov": True}),
        ("adam", {"lr": 0.1, "weight_decay": 0.1}),
        ("adamw", {"lr": 0.1}),
        ("asgd", {"lr": 0.1, "t0": 0.0}),
        ("rprop", {"etas": (0.4, 1.5)}),
        ("adafactor_vector", {"lr": 0.1, "weight_decay": 0.1}),
    ],
)
def test_a_session_trains_as_on_the_cpu(place: str, algorithm: str, settings: dict[str, Any]) -> None:
    expected, found = train("cpu", algorithm, settings), train(place, algorithm, settings)
    for name in ("w", "b", "loss"):
        assert type(found[name]) is np.ndarray
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, err_msg=name)


def test_fetched_values_are_of_their_moment(place: str) -> None:
    session = Session(device=place)
    fetched = run(session, upload("x", [1.0, 2.0]), ("fetch", [("x",)]), ("mul_", ["x", 3.0], []))
    assert fetched["x"].tolist() == [1.0, 2.0]
    assert session.get("x").tolist() == [3.0, 6.0]


def test_data_can_be_replaced_and_shared(place: str) -> None:
    session = Session(device=place)
    run(session, upload("x", [1.0, 2.0]), ("detach", ["x"], ["y"]), upload("z", [3.0, 4.0]))
    run(session, ("set_data", ["x"], [], {"data": np.array([5.0, 6.0])}))
    assert session.get("y").tolist() == [5.0, 6.0]
    run(session, ("share_data", ["x", "z"], []), ("mul_", ["x", 2.0], []))
    assert session.get("z").tolist() == [6.0, 8.0]
    assert session.get("y").tolist() == [5.0, 6.0]


def test_memory_is_counted_and_bounded(place: str) -> None:
    session = Session(device=place, max_bytes=10_000)
    run(session, upload("x", np.zeros(1000)))
    assert session.accounts.used_bytes == 4000
    for _ in range(20):
        run(session, ("add_", ["x", 1.0], []), ("mul", ["x", 2.0], ["y"]), ("free", [("y",)]))
    assert session.accounts.used_bytes == 4000
    with pytest.raises(TooLarge, match="2000"):
        run(session, ("zeros", [], ["big"], {"size": (2000,)}), ("zeros", [], ["bigger"], {"size": (2000,)}))
    run(session, ("free", [("x",)]))
    session.tensors.clear()
    assert session.accounts.used_bytes == 0


def test_a_graph_holds_memory_until_backward(place: str) -> None:
    session = Session(device=place)
    run(session, upload("x", np.ones(1000), requires_grad=True), ("exp", ["x"], ["y"]), ("sum", ["y"], ["z"]))
    run(session, ("free", [("y",)]))
    assert session.accounts.used_bytes >= 8000
    run(session, ("backward", [("z",)], []), ("free", [("z",)]))
    assert session.accounts.used_bytes == 4000
