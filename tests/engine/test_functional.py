"""``autograd.functional`` against torch's: values, nesting of tuples, histories and errors.

Internals: the size of a batch of rows is no setting.
"""

from __future__ import annotations

import zlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import telegrad_engine as tg
from telegrad_engine.schema.op import CATALOGUE, Op
from telegrad_engine.transforms import batched_gradients as batched

from ..op_cases import cases_of
from ..op_cases.stand_ins import Case
from . import oracle, twins
from .twins import both, both_or_neither, both_raise

functional = tg.autograd.functional

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

PRODUCTS = ("vjp", "jvp", "hvp", "vhp")


def cubes(t: Any) -> Any:
    return lambda x: (x**3).sum()


def pair(t: Any) -> Any:
    return lambda x, y: (x * y, (x**2).sum() + t.exp(y).sum())


def net(t: Any) -> Any:
    w = t.tensor([[0.3, -0.2, 0.5], [0.1, 0.9, -0.7]], dtype=t.float64)
    return lambda x: t.softmax(t.tanh(x @ w.t()) @ w, 1)[:, 1:].reshape(-1).log()


def floats(t: Any, *shape: int, **options: Any) -> Any:
    values = np.random.default_rng(zlib.crc32(repr(shape).encode())).uniform(0.2, 1.5, shape)
    return t.tensor(values.tolist(), dtype=t.float64, **options)


def nesting(value: Any) -> Any:
    """The tuples of a result, with shapes for tensors."""
    return [nesting(v) for v in value] if isinstance(value, (tuple, list)) else tuple(value.shape)


# Values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (2, 2), (), (1,)])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_vectors_match_torch(name: str, shape: tuple[int, ...]) -> None:
    both(
        lambda t: getattr(t.autograd.functional, name)(
            cubes(t), floats(t, *shape), floats(t, *shape) if name != "vjp" else None
        )
    )


def test_vjp_and_jvp_of_several_inputs_and_outputs() -> None:
    def run(t: Any) -> Any:
        x, y = floats(t, 3), floats(t, 3)
        left = t.autograd.functional.vjp(pair(t), (x, y), (floats(t, 3), t.tensor(2.0, dtype=t.float64)))
        return left, t.autograd.functional.jvp(pair(t), (x, y), (y, x)), nesting(left)

    both(run)


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_a_jacobian_matches_torch_in_values_and_nesting(strategy: str) -> None:
    def run(t: Any) -> Any:
        def jacobian(f: Any, inputs: Any) -> Any:
            result = t.autograd.functional.jacobian(f, inputs, vectorize=True, strategy=strategy)
            return result, nesting(result)

        return (
            jacobian(pair(t), (floats(t, 3), floats(t, 3))),
            jacobian(net(t), floats(t, 4, 3)),
            jacobian(cubes(t), floats(t, 2)),
            jacobian(cubes(t), (floats(t, 2),)),
            jacobian(lambda x: (x * 2,), floats(t, 2)),
            jacobian(lambda x: x.reshape(2, 1, 2), floats(t, 4)),
            jacobian(lambda x, y: (x[0], t.tensor([1.0, 2.0], dtype=t.float64), y), (floats(t, 2), floats(t, 1))),
        )

    both(run)


def test_a_hessian_matches_torch_in_values_and_nesting() -> None:
    def run(t: Any) -> Any:
        def both_forms(f: Any, inputs: Any) -> Any:
            results = [
                t.autograd.functional.hessian(f, inputs),
                t.autograd.functional.hessian(f, inputs, vectorize=True),
                t.autograd.functional.hessian(f, inputs, vectorize=True, outer_jacobian_strategy="forward-mode"),
            ]
            return results, nesting(results)

        return (
            both_forms(cubes(t), floats(t, 2, 2)),
            both_forms(lambda x, y: (x * x * y).sum() + t.exp(y).sum(), (floats(t, 3), floats(t, 3))),
            both_forms(lambda x: net(t)(x).sum(), floats(t, 2, 3)),
            both_forms(lambda x: x.sum(), floats(t, 2)),
            both_forms(lambda x: (x * x).reshape(1, 1), floats(t, 1)),
        )

    both(run)


@pytest.mark.parametrize("vectorize", [False, True])
def test_empty_inputs_and_outputs(vectorize: bool) -> None:
    for f in (lambda x: x[:0], lambda x: x * 2, lambda x: x.sum()):
        for size in (0, 3):
            both_or_neither(
                lambda t, f=f, size=size: t.autograd.functional.jacobian(f, floats(t, size), vectorize=vectorize)
            )


# Histories ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vjp", "jvp", "hvp", "vhp", "jacobian", "hessian"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_result_has_a_history_only_with_create_graph(name: str, create_graph: bool) -> None:
    def run(t: Any) -> Any:
        x = floats(t, 3, requires_grad=True)
        v = {"vjp": (None,), "jacobian": (), "hessian": ()}.get(name, (floats(t, 3),))
        result = getattr(t.autograd.functional, name)(cubes(t), x, *v, create_graph=create_graph)
        parts = result if isinstance(result, tuple) else (result,)
        found: list[Any] = [p.requires_grad for p in parts]
        if create_graph:
            found += t.autograd.grad(sum(p.sum() for p in parts), x)
        with t.no_grad():
            inside = getattr(t.autograd.functional, name)(cubes(t), x, *v, create_graph=create_graph)
        return found, inside, x.grad is None

    both(run)


def test_the_arguments_are_not_the_tensors_of_the_same_name_outside() -> None:
    def run(t: Any) -> Any:
        x = floats(t, 3, requires_grad=True)
        return t.autograd.functional.jacobian(lambda a: a * x, x)

    both(run)


# Errors -------------------------------------------------------------------------------------


def wrong_calls() -> dict[str, Any]:
    x = (1.0, 2.0)
    lists = {
        f"{name}: {what}": (lambda t, name=name, f=f, args=args, kw=kw: getattr(t.autograd.functional, name)(
            f, *[a(t) for a in args], **kw
        ))
        for name in ("vjp", "jvp", "hvp", "vhp", "jacobian", "hessian")
        for what, f, args, kw in (
            ("inputs are a list", lambda x: x.sum(), [lambda t: [t.tensor(x)]], {}),
            ("an input is a number", lambda x, y: x.sum(), [lambda t: (t.tensor(x), 1.0)], {}),
            ("the output is a list", lambda x: [x.sum()], [lambda t: t.tensor(1.0)], {}),
            ("an output is a number", lambda x: (x.sum(), 1.0), [lambda t: t.tensor(1.0)], {}),
            ("an output of integers", lambda x: x.long().sum(), [lambda t: t.tensor(1.0)], {"strict": True}),
            ("integers", lambda x: x.sum(), [lambda t: t.tensor([1, 2])], {}),
            ("two outputs", lambda x: (x, x), [lambda t: t.tensor(1.0)], {}),
            ("two elements", lambda x: x * 2, [lambda t: t.tensor(x)], {}),
            ("strict, detached", lambda x: x.detach().sum(), [lambda t: t.tensor(1.0)], {"strict": True}),
            ("strict, unused", lambda x, y: x.sum(), [lambda t: (t.tensor(1.0), t.tensor(1.0))], {"strict": True}),
            ("strict, linear", lambda x: (x * 2).sum(), [lambda t: t.tensor(1.0)], {"strict": True}),
            ("strict, linear, graph", lambda x: (x * 2).sum(), [lambda t: t.tensor(1.0, requires_grad=True)],
             {"strict": True, "create_graph": True}),
            ("strict, square, graph", lambda x: (x * x).sum(), [lambda t: t.tensor(1.0, requires_grad=True)],
             {"strict": True, "create_graph": True}),
        )
    }  # fmt: skip
    lists |= {
        f"{name}: {what}": (lambda t, name=name, v=v, several=several: getattr(t.autograd.functional, name)(
            (lambda x, y: (x * y).sum()) if several else (lambda x: (x**2).sum()),
            (t.tensor(x), t.tensor(x)) if several else t.tensor(x), v(t),
        ))
        for name in PRODUCTS
        for what, v, several in (
            ("v of another size", lambda t: t.tensor([1.0, 2.0, 3.0]), False),
            ("two for one v", lambda t: (t.tensor(x), t.tensor(x)), False),
            ("one for two v", lambda t: (t.tensor(x),), True),
            ("an entry of another size", lambda t: (t.tensor(x), t.tensor(1.0)), True),
            ("v is a number", lambda t: 1.0, False),
            ("v holds a number", lambda t: (t.tensor(x), 1.0), True),
            ("v of three", lambda t: (t.tensor(x),) * 3, True),
        )
    }  # fmt: skip
    return lists


@pytest.mark.parametrize("call", wrong_calls().values(), ids=wrong_calls().keys())
def test_a_wrong_call_raises_what_torch_raises(call: Any) -> None:
    if isinstance(oracle.attempt(lambda: call(twins.THEIRS)), oracle.Failure):
        both_raise(call)
    else:
        both(call)


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "sideways"},
        {"strategy": "forward-mode"},
        {"strategy": "forward-mode", "create_graph": True},
        {"strategy": "forward-mode", "strict": True},
        {"vectorize": True, "strict": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["jacobian", "hessian"])
def test_options_that_exclude_each_other(name: str, options: dict[str, Any]) -> None:
    if name == "hessian" and "strategy" in options:
        options = {
            "outer_jacobian_strategy": options["strategy"],
            **{k: v for k, v in options.items() if k != "strategy"},
        }

    def call(t: Any) -> Any:
        return getattr(t.autograd.functional, name)(cubes(t), floats(t, 2), **options)

    with pytest.raises((AssertionError, RuntimeError, NotImplementedError)) as theirs:
        call(twins.THEIRS)
    with pytest.raises(type(theirs.value)) as ours:
        call(twins.OURS)
    assert str(ours.value) == str(theirs.value)


# Many rows at once --------------------------------------------------------------------------


def differentiable_cases() -> list[tuple[Op, Case]]:
    return [(op, case) for op in CATALOGUE if op.differentiable and not op.composite for case in cases_of(op)]


@pytest.mark.parametrize(("op", "case"), differentiable_cases(), ids=lambda v: getattr(v, "key", None))
def test_rows_together_are_the_rows_one_by_one(op: Op, case: Case) -> None:
    """The batched pass against the plain one, for every op and case: what is proof that a rule may be batched."""
    try:
        arrays = oracle.arrays_of(case, np.dtype(np.float64))
        call = oracle.with_dtypes(oracle.build(case, arrays, lambda a: tg.tensor(a)), tg.dtypes)
        tg.manual_seed(0)
        outputs = oracle.as_list(oracle.our_function(op)(*call.args, **call.kwargs))
    except oracle.ERROR_BASES:
        return
    outputs = [o for o in outputs if isinstance(o, tg.Tensor) and o.requires_grad]
    rows = 3
    seeds = [tg.tensor(np.random.default_rng(i).normal(size=(rows, *o.shape))) for i, o in enumerate(outputs)]
    if not outputs:
        return
    try:
        singly = [
            tg.autograd.grad(outputs, call.inputs, [s[i] for s in seeds], retain_graph=True, allow_unused=True)
            for i in range(rows)
        ]
    except oracle.ERROR_BASES:
        return
    together = tg.autograd.grad(outputs, call.inputs, seeds, allow_unused=True, is_grads_batched=True)
    for place, found in enumerate(together):
        expected = [row[place] for row in singly]
        if found is None:
            assert expected[0] is None
            continue
        assert tuple(found.shape) == (rows, *call.inputs[place].shape)
        np.testing.assert_allclose(found.numpy(), np.stack([e.numpy() for e in expected]), rtol=1e-9, atol=1e-12)


def test_hooks_see_one_row_at_a_time() -> None:
    seen: list[Any] = []
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    y.register_hook(lambda g: seen.append(tuple(g.shape)) or g * 10)
    (result,) = tg.autograd.grad(y * 1, x, tg.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), is_grads_batched=True)
    assert seen == [(2,)] * 3
    assert result.tolist() == [[20.0, 0.0], [0.0, 40.0], [20.0, 40.0]]


def test_a_large_jacobian_is_computed_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    x = floats(SimpleNamespace(tensor=tg.tensor, float64=tg.dtypes.float64), 7)
    expected = functional.jacobian(lambda x: x.exp().cumsum(0), x)
    monkeypatch.setattr(batched, "ELEMENTS", 14)
    found = functional.jacobian(lambda x: x.exp().cumsum(0), x)
    np.testing.assert_allclose(found.numpy(), expected.numpy())


@pytest.mark.parametrize("create_graph", [False, True])
def test_grad_takes_batches_as_torch_does(create_graph: bool) -> None:
    def run(t: Any) -> Any:
        x, unused = floats(t, 3, requires_grad=True), floats(t, 2, requires_grad=True)
        results = t.autograd.grad(
            (x**2, (x**3).sum()), (x, unused), (floats(t, 2, 3), floats(t, 2)), is_grads_batched=True,
            create_graph=create_graph, materialize_grads=True,
        )  # fmt: skip
        return results, [r.requires_grad for r in results]

    both(run)


@pytest.mark.parametrize(
    "seeds",
    [
        lambda t: t.tensor([1.0, 1.0, 1.0]),
        lambda t: t.tensor([[1.0, 1.0]]),
        lambda t: None,
        lambda t: t.tensor(1.0),
        lambda t: t.tensor([1.0] * 0).reshape(0, 3),
    ],
)
def test_a_wrong_batch_raises_what_torch_raises(seeds: Any) -> None:
    def run(t: Any) -> Any:
        x = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
        return t.autograd.grad(x * 2, x, seeds(t), is_grads_batched=True)

    both_raise(run)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_anomaly_mode_watches_every_row() -> None:
    def run(t: Any) -> Any:
        with t.autograd.detect_anomaly():
            return t.autograd.functional.jacobian(lambda x: x.sqrt() * 0, t.tensor([0.0, 1.0]))

    both_raise(run)
