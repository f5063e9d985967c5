"""Mixed precision: which ops run in which precision, what flows back, and the scaling of gradients; beside torch's.

Internals: the policies that ops declare are compared with torch's lists.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import telegrad_engine as tg
from telegrad_engine import amp
from telegrad_engine.schema.op import Op
from telegrad_engine.schema.promotion import Policy

from ..client.parity import ENGINE, bodies, library, same, same_error
from ..op_cases import cases_of
from . import oracle
from .twins import leaf

OPS = [op for op in tg.CATALOGUE if cases_of(op) and not (op.internal or op.random or op.factory)]
NOT_AS_TORCH = {
    "linalg_pinv": "T",  # a kernel of its own, where torch's last step is a matmul
    "linalg_pinv.rcond": "T",
    "pad": "mode",  # of reflections and replications, which are ops of their own and on torch's list
    "bilinear": "T",  # torch's kernel has no autocast, and refuses what its own products give
    "affine_grid": "T(",  # a product of matrices in torch, and one op here
    "einsum": "->ij",  # an outer product, which torch multiplies and we matmul
    "tensordot.dims": "T(1, 3)",  # the same
}
"""What the case's text has in it where an op differs."""


def dtypes_of(results: Any) -> Any:
    if isinstance(results, oracle.Failure):
        return None
    return [oracle.dtype_name(r) if hasattr(r, "dtype") else None for r in results]


def run(op: Op, case: Any, arrays: Any, theirs: bool) -> Any:
    if theirs:
        call = oracle.build(case, arrays, oracle.make_torch)
        return oracle.attempt(lambda: oracle.torch_function(op)(*call.args, **call.kwargs))
    call = oracle.build(case, arrays, tg.tensor)
    return oracle.attempt(lambda: oracle.our_function(op)(*call.args, **call.kwargs))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_every_op_answers_in_torchs_dtype(op: Op) -> None:
    for case in cases_of(op)[:4]:
        if NOT_AS_TORCH.get(op.key, "nothing") in repr(case):
            continue
        for dtype in (np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)):
            try:
                arrays = oracle.arrays_of(case, dtype)
            except ValueError:
                continue
            with torch.autocast("cpu"):
                expected = dtypes_of(run(op, case, arrays, theirs=True))
            with amp.autocast("cpu"):
                found = dtypes_of(run(op, case, arrays, theirs=False))
            if expected is None or found == expected:
                continue
            plainly = [dtypes_of(run(op, case, arrays, theirs)) for theirs in (False, True)]
            assert plainly[0] != plainly[1], case  # else they differ without autocast, too: another test's business


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_declared_policies_are_torchs(device: str) -> None:
    key = f"Autocast{device.upper()}"
    names = torch._C._dispatch_get_all_op_names()
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    theirs = {n.removeprefix("aten::").split(".")[0] for n in names if n.startswith("aten::") and has(n, key)}
    known_as = {
        "cross_entropy": "cross_entropy_loss" if device == "cpu" else "nll_loss",
        "grid_sample": "grid_sampler",
        "interpolate": "upsample_bilinear2d",
        "max_unpool1d": "max_unpool2d",
        "softmin": "softmax",
    }
    declared = {op: getattr(op.autocast, device) for op in tg.CATALOGUE}
    for op, policy in declared.items():
        if policy not in (None, Policy.AS_GIVEN) and op.name not in ("cat", "linalg_multi_dot", "stack"):
            assert known_as.get(op.name, op.name) in theirs, op


# What is cast, when --------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def on_the_engine() -> Iterator[None]:
    with library(ENGINE):
        yield


def matrix(lib: Any, requires_grad: bool = False) -> Any:
    return lib.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=requires_grad)


class Bodies:
    """Functions that must return the same in both libraries."""

    def nesting_and_what_it_answers(lib: Any) -> Any:
        a = matrix(lib)

        def now() -> Any:
            kinds = [lib.is_autocast_enabled("cpu"), lib.is_autocast_enabled(), lib.is_autocast_enabled("cuda")]
            dtypes = [(a @ a).dtype, lib.get_autocast_dtype("cpu"), lib.get_autocast_dtype("cuda")]
            return kinds + dtypes + [lib.is_autocast_cache_enabled()]

        seen = [now()]
        with lib.autocast("cpu"):
            seen.append(now())
            with lib.autocast("cpu", dtype=lib.float16):
                seen.append(now())
            with lib.autocast("cpu", enabled=False, cache_enabled=False):
                seen.append(now())
            seen.append(now())
        seen.append(lib.autocast("cpu", lib.bfloat16)(now)())
        seen.append(lib.autocast("cpu", lib.bfloat16, False)(now)())
        with pytest.raises(KeyError), lib.autocast("cpu"):
            raise KeyError
        return [*seen, now()]

    def gradients_have_the_leaves_dtype(lib: Any) -> Any:
        w, x = matrix(lib, True), matrix(lib)
        with lib.autocast("cpu"):
            out = (x @ w).tanh() @ w
        out.sum().backward()
        node = out.grad_fn.next_functions[1][0]
        return out.dtype, w.grad.dtype, [[round(v) for v in row] for row in w.grad.tolist()], node.name()

    def casts_of_parameters_are_kept_until_the_outermost_block_ends(lib: Any) -> Any:
        w, x = matrix(lib, True), matrix(lib)

        def casts(*outs: Any) -> bool:
            first, second = [out.grad_fn.next_functions[0][0] for out in outs]
            return first is second

        with lib.autocast("cpu"):
            with lib.no_grad():
                w @ x
            before = w @ x
            with lib.autocast("cpu", enabled=False):
                pass
            with lib.no_grad():
                w.add_(1)
            stale = w @ x
            seen = [before.requires_grad, casts(before, stale), stale]
            lib.clear_autocast_cache()
            seen.append(w @ x)
        with lib.autocast("cpu"):
            seen.append(casts(before, w @ x))
        with lib.autocast("cpu", cache_enabled=False):
            seen.append(casts(w @ x, w @ x))
        return seen

    def a_training_loop_with_overflows(lib: Any) -> Any:
        scaler = lib.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
        p, idle = leaf(lib, (1.0, 2.0)), leaf(lib, (1.0, 2.0))
        optimizer = Descent(p, idle)
        seen = []
        for i in range(7):
            p.grad = None
            scaler.scale((p * p).sum()).backward()
            if i == 3:
                p.grad[0] = float("inf")
            if i == 5:
                scaler.unscale_(optimizer)
            seen.append([p.grad.tolist(), scaler.step(optimizer), p.grad.tolist()])
            scaler.update()
            seen.append([scaler.get_scale(), scaler.state_dict(), p.tolist()])
        return seen, optimizer.steps

    def a_scaler_that_is_off_does_nothing(lib: Any) -> Any:
        scaler = lib.amp.GradScaler("cpu", enabled=False)
        p = leaf(lib)
        scaler.scale(p.sum()).backward()
        optimizer = Descent(p)
        scaler.unscale_(optimizer)
        scaler.load_state_dict({})
        seen = [scaler.step(optimizer), scaler.update(), scaler.state_dict(), scaler.get_scale(), scaler.is_enabled()]
        return seen, p, scaler.scale(5)

    def the_state_comes_back(lib: Any) -> Any:
        scaler, other = lib.amp.GradScaler("cpu", init_scale=2.0), lib.amp.GradScaler("cpu")
        scaler.set_growth_factor(3.0)
        scaler.set_backoff_factor(0.25)
        scaler.set_growth_interval(7)
        scaler.scale(leaf(lib).sum())
        scaler.update(16.0)
        other.load_state_dict(scaler.state_dict())
        again = pickle.loads(pickle.dumps(other))
        return (
            other.state_dict(), again.state_dict(), other.scale(leaf(lib)), again.get_growth_factor(),
            again.get_backoff_factor(), again.get_growth_interval(),
        )  # fmt: skip


@pytest.mark.every
@pytest.mark.parametrize("body", bodies(Bodies), ids=lambda body: body.__name__)
def test_it_is_as_in_torch(body: Callable[[Any], Any]) -> None:
    same(body)


@pytest.mark.parametrize(
    "use",
    [
        lambda lib, a, b, d: [(a @ b).dtype, (b @ b).dtype, (a @ b).tolist()],
        lambda lib, a, b, d: [(d @ d).dtype, (a.long() @ a.long()).dtype],
        lambda lib, a, b, d: [lib.cat([a, b]).dtype, lib.cat([b, b]).dtype, lib.cat([b, d]).dtype],
        lambda lib, a, b, d: [lib.stack([b, a]).dtype, lib.stack([b, b]).dtype],
        lambda lib, a, b, d: lib.cat([b, b.half()]),
        lambda lib, a, b, d: lib.cat([a.half(), a]),
        lambda lib, a, b, d: [a.clone().addmm_(a, a).dtype, (a + b).dtype, (a * b).dtype, b.exp().dtype],
        lambda lib, a, b, d: [a.mv(a[0]).dtype, a[0].dot(a[0]).dtype, (a @ a[0]).dtype, lib.addmv(a[0], a, a[0]).dtype],
        lambda lib, a, b, d: [b.prod().dtype, b.sum().dtype, b.softmax(0).dtype],
    ],
)
def test_what_is_cast(use: Any) -> None:
    def run(lib: Any) -> Any:
        a = matrix(lib)
        with lib.autocast("cpu"):
            return use(lib, a, a.to(lib.bfloat16), a.double())

    try:
        run(torch)
    except RuntimeError:
        same_error(run, whole=True)
    else:
        same(run)


def test_misuse_of_autocast() -> None:
    same_error(lambda lib: lib.autocast(3), whole=True)
    same_error(lambda lib: lib.autocast(lambda: 1), whole=True)
    same_error(lambda lib: lib.autocast("foo"), whole=True)
    same_error(lambda lib: lib.is_autocast_enabled("foo"), whole=True)
    same_error(lambda lib: lib.amp.custom_fwd(device_type=3), whole=True)

    def texts(lib: Any) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with lib.autocast("cpu", dtype=lib.float64):
                return str(caught[0].message), (matrix(lib) @ matrix(lib)).dtype

    same(texts)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_binary_cross_entropy_is_refused_where_torch_refuses_it(device: str) -> None:
    class OnDevice(tg.Tensor):
        device = "cuda"

    x = OnDevice(np.array([0.5], np.float16))
    setting = amp.autocast(device)
    with setting:
        if device == "cuda":
            with pytest.raises(RuntimeError, match="are unsafe to autocast"):
                tg.functions.binary_cross_entropy(x, x)
            assert x.exp().dtype == tg.dtypes.float32
            assert tg.functions.softmax(x, 0).dtype == tg.dtypes.float32
            assert tg.functions.softmax(x, 0, dtype=tg.dtypes.float64).dtype == tg.dtypes.float64
            assert tg.functions.sum(x).dtype == tg.dtypes.float32
            assert tg.functions.atan2(x, x).dtype == tg.dtypes.float16
            single = OnDevice(np.array([0.5], np.float32))
            assert (single.outer(single).dtype, single.matmul(single).dtype) == (tg.dtypes.float32, tg.dtypes.float16)
        else:
            assert x.exp().dtype == tg.dtypes.float16


# Scaling -------------------------------------------------------------------------------------


class Descent:
    """The plainest optimizer, for either side."""

    def __init__(self, *params: Any) -> None:
        self.param_groups = [{"params": list(params)}]
        self.steps = 0

    def step(self, closure: Any = None) -> str:
        self.steps += 1
        for param in self.param_groups[0]["params"]:
            if param.grad is not None:
                param.detach().sub_(param.grad * 0.1)
        return "stepped"


def test_what_can_be_scaled() -> None:
    def use(lib: Any) -> Any:
        scaler = lib.amp.GradScaler("cpu", init_scale=8.0)
        x = leaf(lib)
        scaled = scaler.scale([x.sum(), (x,)]) + list(scaler.scale({x: 1}))
        half = x.half()
        return scaled, scaled[0].grad_fn.name(), scaler.scale(half).dtype, scaler.scale(half.sum()).dtype

    same(use)
    same_error(lambda lib: lib.amp.GradScaler("cpu").scale(5), whole=True)


@pytest.mark.parametrize(
    "use",
    [
        lambda lib, g, o, p: lib.amp.GradScaler("cpu").step(o),
        lambda lib, g, o, p: lib.amp.GradScaler("cpu").update(),
        lambda lib, g, o, p: lib.amp.GradScaler("cpu").unscale_(o),
        lambda lib, g, o, p: (g.unscale_(o), g.unscale_(o)),
        lambda lib, g, o, p: (g.step(o), g.step(o)),
        lambda lib, g, o, p: (g.step(o), g.unscale_(o)),
        lambda lib, g, o, p: (setattr(p, "grad", None), g.step(o)),
        lambda lib, g, o, p: g.update(),
        lambda lib, g, o, p: g.step(o, closure=lambda: 1),
        lambda lib, g, o, p: g.update(lib.tensor([8.0, 1.0])),
        lambda lib, g, o, p: g.update(lib.tensor([8.0], requires_grad=True)),
        lambda lib, g, o, p: g.load_state_dict({}),
        lambda lib, g, o, p: g.load_state_dict({"scale": 3.0}),
        lambda lib, g, o, p: (g.unscale_(o), pickle.dumps(g)),
        lambda lib, g, o, p: lib.amp.GradScaler("cpu", growth_factor=1.0),
        lambda lib, g, o, p: lib.amp.GradScaler("cpu", backoff_factor=1.0),
    ],
)
def test_misuse_of_the_scaler(use: Any) -> None:
    def run(lib: Any) -> Any:
        scaler = lib.amp.GradScaler("cpu")
        p = leaf(lib)
        scaler.scale(p.sum()).backward()
        return use(lib, scaler, Descent(p), p)

    same_error(run, whole=True)


def test_half_gradients_are_refused_and_other_dtypes_unscaled() -> None:
    def unscaled(dtype: Any) -> Any:
        def use(lib: Any) -> Any:
            scaler = lib.amp.GradScaler("cpu", init_scale=4.0)
            p = leaf(lib).detach().to(dtype(lib)).requires_grad_()
            scaler.scale(p.sum()).backward()
            scaler.unscale_(Descent(p))
            return p.grad, p.grad.dtype

        return use

    same_error(unscaled(lambda lib: lib.float16), whole=True)
    same(unscaled(lambda lib: lib.bfloat16))
    same(unscaled(lambda lib: lib.float64))
