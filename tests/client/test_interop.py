"""Interoperability of tensors: other libraries, devices, defaults, precision."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import check, same, same_error

pytestmark = pytest.mark.usefixtures("session")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int16", "uint16", "bool"])
def test_tensors_of_torch_come_in(dtype: str) -> None:
    theirs = torch.tensor([[0, 1, 2], [1, 0, 3]]).to(getattr(torch, dtype))
    for ours in (tg.from_torch(theirs), tg.tensor(theirs), tg.as_tensor(theirs), tg.from_torch(theirs.t()).t()):
        assert (ours.dtype.name, ours.tolist()) == (dtype, theirs.tolist())
    assert tg.tensor(theirs, dtype=tg.float64).dtype is tg.float64
    assert not tg.from_torch(torch.ones(2, requires_grad=True)).requires_grad


def test_tensors_go_out() -> None:
    ours = tg.arange(6).reshape(2, 3)
    expected = torch.arange(6).reshape(2, 3)
    assert torch.equal(torch.from_dlpack(ours), expected)
    assert torch.equal(torch.tensor(ours), expected)
    assert torch.equal(torch.from_numpy(ours.numpy()), expected)
    np.testing.assert_array_equal(np.asarray(ours), expected.numpy())
    np.testing.assert_array_equal(np.from_dlpack(ours), expected.numpy())
    assert np.asarray(ours, dtype=np.float32).dtype == np.float32
    out = torch.from_dlpack(ours)
    out += 1
    assert ours.tolist() == expected.tolist()


WIDE = [np.uint16, np.uint32, np.uint64]
ON_WIDE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "made from arrays": lambda lib, t, a: [t, lib.from_numpy(a.copy()), lib.as_tensor(a), t.new_tensor([1, 2])],
    "made from numbers": lambda lib, t, a: [
        lib.tensor([[1, 2], [3, 4]], dtype=t.dtype),
        lib.tensor(int(a[-1]), dtype=t.dtype),
        lib.full((2,), int(a[-1]), dtype=t.dtype),
        lib.zeros(2, dtype=t.dtype),
        lib.ones_like(t),
        t.new_full((2,), 7),
    ],
    "converted": lambda lib, t, a: [t.long(), t.to(lib.int32), t.float(), t.bool(), lib.tensor([1.5, 200]).to(t.dtype)],
    "wrapped around": lambda lib, t, a: lib.tensor([-1, -2]).to(t.dtype),
    "as numbers": lambda lib, t, a: [t.tolist(), t[2].item(), str(t.numpy().dtype), t.type(), repr(t), f"{t[1]:d}"],
    "limits": lambda lib, t, a: [repr(lib.iinfo(t.dtype)), repr(t.dtype), t.element_size(), t.dtype.is_signed],
    "indexed": lambda lib, t, a: [t[1:], t[lib.tensor([0, 2])], t[lib.tensor([True, False, True])], t.split(1)[0]],
    "written": lambda lib, t, a: [
        _written(t.clone(), lambda c: c.__setitem__(slice(0, 2), lib.tensor([7, 8]))),
        _written(t.clone(), lambda c: c.fill_(3)),
        lib.zeros(3).copy_(t),
    ],
    "moved": lambda lib, t, a: [t.reshape(3, 1).t(), t.expand(2, 3), t.repeat(2), lib.cat([t, t]), t.roll(1)],
    "computed": lambda lib, t, a: [t * 2, t / 2, t + 1.5, t + lib.tensor([1.0]), t == 2, t & 1, t | t, t ^ 1],
    "summed": lambda lib, t, a: [t.sum(), t.prod(), t.cumsum(0), t.any(), t.all(), t.unique(), t.sort().values],
    "promoted": lambda lib, t, a: [str(lib.promote_types(t.dtype, lib.float16)), str(lib.result_type(t, 1))],
    "cast": lambda lib, t, a: [lib.can_cast(t.dtype, lib.int8), lib.can_cast(lib.float32, t.dtype)],
}


def _written(tensor: Any, write: Callable[[Any], Any]) -> Any:
    write(tensor)
    return tensor


@pytest.mark.every
@pytest.mark.parametrize("kind", WIDE)
def test_wide_unsigned_integers_are_torchs(kind: Any) -> None:
    numbers = np.array([1, 2, np.iinfo(kind).max], kind)
    for call in ON_WIDE.values():
        same(lambda lib, call=call: call(lib, lib.tensor(numbers), numbers))


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize(
    "call",
    [
        lambda lib, t: t + lib.tensor([1]),
        lambda lib, t: lib.tensor([1], dtype=lib.uint8) * t,
        lambda lib, t: lib.promote_types(t.dtype, lib.bool),
        lambda lib, t: lib.cat([t, lib.tensor([1])]),
        lambda lib, t: lib.arange(5)[t],
        lambda lib, t: t.clone().requires_grad_(),
        lambda lib, t: lib.tensor([2**40], dtype=lib.uint32),
        lambda lib, t: lib.finfo(t.dtype),
        lambda lib, t: lib.tensor([2**63]),
        lambda lib, t: lib.tensor([1, -1], dtype=lib.uint64),
        lambda lib, t: lib.arange(5)[lib.tensor([1], dtype=lib.int16)],
    ],
)
def test_wide_unsigned_integers_are_refused_as_by_torch(kind: Any, call: Callable[[Any, Any], Any]) -> None:
    same_error(lambda lib: call(lib, lib.tensor(np.array([1, 2], kind))), whole=True)


@pytest.mark.parametrize("expanded", [False, True])
def test_an_array_of_a_tensor_that_requires_grad_is_made_by_force(expanded: bool) -> None:
    def made(lib: Any) -> Any:
        x = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = x.expand(2, 3) if expanded else x * 2
        return [y.numpy(force=True).tolist(), y.detach().numpy(force=False).tolist(), y.requires_grad]

    same(made)
    same_error(lambda lib: lib.ones(2, requires_grad=True).numpy(force=False), whole=True)


def test_dlpack_comes_in() -> None:
    for source in (torch.arange(4), np.arange(4), tg.arange(4)):
        ours = tg.from_dlpack(source)
        check(ours, torch.arange(4))
        assert ours is not source


def test_what_is_no_tensor_is_refused() -> None:
    same_error(lambda lib: lib.from_numpy([1]))
    with pytest.raises(TypeError, match=r"expected a torch\.Tensor"):
        tg.from_torch([1])


@pytest.mark.parametrize("spec", [("cuda:0",), ("cuda", 1), ("cpu",), ("cuda",), ("meta",), ("mps:2",)])
def test_devices_are_torchs(spec: tuple[Any, ...]) -> None:
    ours, theirs = tg.device(*spec), torch.device(*spec)
    assert (ours.type, ours.index, str(ours), repr(ours)) == (theirs.type, theirs.index, str(theirs), repr(theirs))
    assert ours == tg.device(str(theirs))
    assert ours == tg.device(ours) == tg.device(theirs) == copy.deepcopy(ours) == pickle.loads(pickle.dumps(ours))
    assert ours != str(ours)
    assert ours != tg.device("cuda:7")
    assert len({ours, tg.device(ours)}) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda lib: lib.device("foo"),
        lambda lib: lib.device(""),
        lambda lib: lib.device("cuda:x"),
        lambda lib: lib.device("cuda:-1"),
        lambda lib: lib.device("cuda", -1),
        lambda lib: lib.device("cuda:0", 1),
        lambda lib: lib.ones(2).cuda(),
        lambda lib: lib.set_default_dtype(lib.int32),
    ],
)
def test_mistakes_are_torchs(function: Callable[[Any], Any]) -> None:
    same_error(function)


def test_a_tensor_is_where_its_session_computes() -> None:
    x = tg.ones(2)
    assert x.device == tg.device("cpu")
    assert not x.is_cuda
    assert not tg.cuda.is_available()
    assert tg.cuda.device_count() == 0
    device = tg.device("cuda" if tg.cuda.is_available() else "cpu")
    for same_one in (x.to(device), x.to("cpu"), x.to(torch.device("cpu")), x.cpu(), x.to(x.device)):
        assert same_one is x
    assert x.to(device, tg.float64).dtype is tg.float64
    assert tg.zeros(3, device=device).tolist() == tg.tensor([0.0] * 3, device=device).tolist()
    for function in (lambda: x.to("cuda"), lambda: tg.ones(2, device="cuda"), lambda: tg.tensor(1, device="cuda:0")):
        with pytest.raises(RuntimeError, match="available: cpu"):
            function()


def test_the_default_dtype_is_the_sessions() -> None:
    def run(lib: Any) -> Any:
        before = lib.get_default_dtype()
        lib.set_default_dtype(lib.float64)
        try:
            made = [lib.tensor(1.5), lib.ones(2), lib.arange(3) / 2, lib.nn.Linear(2, 2).weight.detach() * 0]
            return made, str(before), str(lib.get_default_dtype())
        finally:
            lib.set_default_dtype(before)

    same(run)


def test_dtypes_have_torchs_other_names() -> None:
    for name in ("float", "double", "half", "short", "int", "long", "bool"):
        assert f"torch.{getattr(tg, name).name}" == str(getattr(torch, name))


def test_autocast_casts_what_torch_casts() -> None:
    def run(lib: Any) -> Any:
        x = lib.arange(4.0).reshape(2, 2)
        w = lib.ones(2, 2, requires_grad=True)
        with lib.amp.autocast("cpu"):
            hidden = (x @ w).relu()
            loss = lib.nn.functional.mse_loss(hidden, x)
            inner = loss.item()  # a value that is read inside autocast
        loss.backward()
        with lib.autocast("cpu", dtype=lib.bfloat16, enabled=False):
            plain = x @ x
        return str(hidden.dtype), hidden.detach().float(), loss.detach(), inner, w.grad, plain

    same(run, 1e-2)


def test_inference_tensors_stay_out_of_graphs() -> None:
    def run(lib: Any) -> Any:
        w = lib.ones(2, requires_grad=True)
        with lib.inference_mode():
            assert lib.is_inference_mode_enabled()
            y = w * 2
            y.tolist()
        assert y.is_inference()
        z = w * 3
        z.sum().backward()
        w * y

    same_error(run, "Inference tensors cannot be saved for backward")


def test_how_tensors_print_can_be_set() -> None:
    texts = []
    for lib in (tg, torch):
        lib.set_printoptions(precision=2)
        texts.append(repr(lib.tensor([1.23456])))
        lib.set_printoptions(profile="default")
    assert texts[0] == texts[1]
