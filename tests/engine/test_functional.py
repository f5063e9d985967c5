"""``autograd.functional`` and ``gradcheck`` against torch's: values, nesting, histories, errors, and their words.

Internals: the size of a batch of rows is no setting.
"""

from __future__ import annotations

import zlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import telegrad_engine as tg
from telegrad_engine.errors import GradcheckError
from telegrad_engine.schema.op import CATALOGUE, Op
from telegrad_engine.transforms import batched_gradients as batched

from ..op_cases import cases_of
from ..op_cases.stand_ins import Case
from . import oracle, twins
from .twins import OURS, THEIRS, both, both_or_neither, both_raise

functional = tg.autograd.functional


pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning",
    "ignore:Input #0 requires gradient and is not a double:UserWarning",
    "ignore:Backwards compatibility:UserWarning",
)
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


DIFFERENTIABLE = [op for op in CATALOGUE if op.differentiable and not op.composite and cases_of(op)]


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.key)
def test_rows_together_are_the_rows_one_by_one(op: Op) -> None:
    """The batched pass against the plain one, for every op and case: what is proof that a rule may be batched."""
    for case in cases_of(op):
        hold_rows(op, case)


def hold_rows(op: Op, case: Case) -> None:
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
    for history in (True, False):
        together = tg.autograd.grad(
            outputs, call.inputs, seeds, create_graph=history, allow_unused=True, is_grads_batched=True
        )
        for place, found in enumerate(together):
            expected = [row[place] for row in singly]
            if found is None:
                assert expected[0] is None, case
                continue
            assert tuple(found.shape) == (rows, *call.inputs[place].shape), case
            wanted = np.stack([e.numpy() for e in expected])
            np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-9, atol=1e-12, err_msg=str(case))


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


# gradcheck and gradgradcheck -----------------------------------------------------------------------------------------


def leaf(t: Any, values: Any = (1.0, 2.0)) -> Any:
    return t.tensor(list(values) if isinstance(values, tuple) else values, dtype=t.float64, requires_grad=True)


def scaled(t: Any, backward: Any, forward: Any = lambda x: x * 2) -> Any:
    """A Function of one input with this backward."""

    class Scaled(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return forward(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return backward(grad)

    return Scaled.apply


def attempt(call: Any, t: Any) -> Any:
    try:
        return call(t)
    except Exception as error:
        return type(error).__mro__, str(error)


def own_words(text: str) -> str:
    """A text of ours with dtypes printed as torch prints its own."""
    return text.replace("dtype=telegrad.", "dtype=torch.")


def agree(call: Any, lines: int | None = None) -> Any:
    """Both give the same, or raise the same built-in class with the same text, or the same first ``lines`` of it."""
    theirs, ours = attempt(call, THEIRS), attempt(call, OURS)
    if not isinstance(theirs, tuple):
        assert ours == theirs
        return ours
    kinds = [k for k in theirs[0] if k.__module__ == "builtins"]
    assert isinstance(ours, tuple), f"torch raised {theirs[1]}"
    assert kinds[0] in ours[0]
    assert own_words(ours[1]).splitlines()[:lines] == theirs[1].splitlines()[:lines]
    return ours[1]


RIGHT = {
    "a cube": (lambda t: lambda x: x**3, lambda t: leaf(t)),
    "a number": (lambda t: lambda x: x.exp(), lambda t: leaf(t, 0.5)),
    "nothing": (lambda t: lambda x: x * 2, lambda t: leaf(t, ())),
    "several": (lambda t: lambda x, y: (x * y, [x.sum()][0]), lambda t: (leaf(t), leaf(t, (3.0, 4.0)))),
    "a list": (lambda t: lambda x, y: [x * y, x], lambda t: [leaf(t), leaf(t, (3.0, 4.0))]),
    "unused": (lambda t: lambda x, y: x * 2, lambda t: (leaf(t), leaf(t, 3.0))),
    "a constant output": (lambda t: lambda x: x.detach() * 0, lambda t: leaf(t)),
    "a constant input": (lambda t: lambda x, y, n: x * y * n, lambda t: (leaf(t), leaf(t).detach(), 3)),
    "a matrix": (lambda t: lambda x: x @ x, lambda t: leaf(t, [[1.0, 2.0], [3.0, 4.0]])),
}
MODES = [{}, {"fast_mode": True}, {"check_batched_grad": True}, {"check_forward_ad": True}]


@pytest.mark.parametrize("options", MODES, ids=str)
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str, options: dict[str, Any]) -> None:
    func, inputs = RIGHT[name]
    if "fast_mode" in options and name in ("nothing",):
        assert OURS.autograd.gradcheck(func(OURS), inputs(OURS), **options)
        return
    assert agree(lambda t: t.autograd.gradcheck(func(t), inputs(t), **options)) is True


@pytest.mark.parametrize("name", ["a cube", "several", "a number", "a matrix", "unused"])
@pytest.mark.parametrize("fast_mode", [False, True])
def test_second_derivatives_that_are_right_pass(name: str, fast_mode: bool) -> None:
    func, inputs = RIGHT[name]
    assert agree(lambda t: t.autograd.gradgradcheck(func(t), inputs(t), fast_mode=fast_mode)) is True


def test_second_derivatives_take_grad_outputs() -> None:
    assert agree(lambda t: t.autograd.gradgradcheck(lambda x: x**3, leaf(t), leaf(t, (0.3, -2.0)))) is True


WRONG = {
    "a wrong factor": lambda t: t.autograd.gradcheck(scaled(t, lambda g: g * 3), leaf(t)),
    "no factor": lambda t: t.autograd.gradcheck(scaled(t, lambda g: g * 0 + 2), leaf(t, (1.0,))),
    "a detached output": lambda t: t.autograd.gradcheck(lambda x: x.detach() * 2, leaf(t)),
    "nothing to check": lambda t: t.autograd.gradcheck(lambda x: x * 2, leaf(t).detach()),
    "an output that is a number": lambda t: t.autograd.gradcheck(lambda x: 1.0, leaf(t)),
    "overlapping memory": lambda t: t.autograd.gradcheck(lambda x: x * 2, leaf(t, 1.0).expand(3)),
    "no mode": lambda t: t.autograd.gradcheck(lambda x: x, leaf(t), check_backward_ad=False),
    "batches of forward mode": lambda t: t.autograd.gradcheck(lambda x: x, leaf(t), check_batched_forward_grad=True),
    "batches of backward mode": lambda t: t.autograd.gradcheck(
        lambda x: x, leaf(t), check_backward_ad=False, check_forward_ad=True, check_batched_grad=True
    ),
    "no second mode": lambda t: t.autograd.gradgradcheck(lambda x: x, leaf(t), check_rev_over_rev=False),
    "undefined": lambda t: t.autograd.gradgradcheck(
        lambda x: x, leaf(t), check_rev_over_rev=False, check_fwd_over_rev=True
    ),
    "batched": lambda t: t.autograd.gradgradcheck(
        lambda x: x, leaf(t), check_rev_over_rev=False, check_fwd_over_rev=True, check_undefined_grad=False,
        check_batched_grad=True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_fails_with_torchs_words(name: str) -> None:
    agree(WRONG[name])


def test_single_precision_warns_and_fails() -> None:
    def call(t: Any) -> Any:
        x = t.tensor([1.0, 2.0], requires_grad=True)
        with pytest.warns(UserWarning, match="not a double precision"):
            return t.autograd.gradcheck(lambda x: x * 2, x)

    agree(call, lines=1)


def test_a_wrong_second_derivative_fails() -> None:
    def call(t: Any) -> Any:
        return t.autograd.gradgradcheck(scaled(t, lambda g: (g * 3).detach() + g, lambda x: x * 4), leaf(t))

    assert "Jacobian mismatch for output 0 with respect to input 1" in agree(call, lines=1)


def test_fast_mode_shows_the_whole_matrices() -> None:
    with pytest.raises(GradcheckError) as error:
        OURS.autograd.gradcheck(scaled(OURS, lambda g: g * 3), leaf(OURS), fast_mode=True)
    with pytest.raises(RuntimeError) as theirs:
        torch.autograd.gradcheck(scaled(THEIRS, lambda g: g * 3), leaf(THEIRS), fast_mode=True)
    ours_lines, their_lines = own_words(str(error.value)).splitlines(), str(theirs.value).splitlines()
    assert [ours_lines[0], *ours_lines[3:13]] == [their_lines[0], *their_lines[3:13]]


def test_without_raising_the_answer_is_false() -> None:
    assert agree(lambda t: t.autograd.gradcheck(scaled(t, lambda g: g * 3), leaf(t), raise_exception=False)) is False


def test_a_backward_that_varies_is_not_reentrant() -> None:
    def call(t: Any) -> Any:
        calls = []

        def backward(grad: Any) -> Any:
            calls.append(1)
            return grad * 2 + len(calls) * 1e-9 * grad

        return t.autograd.gradcheck(scaled(t, backward), leaf(t))

    agree(call, lines=1)
    assert OURS.autograd.gradcheck(lambda x: x * 2, leaf(OURS), nondet_tol=1e-3)


def test_dtypes_of_gradients_are_checked_on_request() -> None:
    assert OURS.autograd.gradcheck(lambda x: x * 2, leaf(OURS), check_grad_dtypes=True)


def test_batches_of_gradients_are_held_against_single_ones() -> None:
    assert OURS.autograd.gradcheck(lambda x: x.sin() * 2, leaf(OURS), check_batched_grad=True)
    seen: list[Any] = []

    def backward(grad: Any) -> Any:
        """Right, but for a gradient that it has seen before: as the rows of the batch are."""
        again = grad.tolist() in seen
        seen.append(grad.tolist())
        return grad * (3 if again else 2)

    with pytest.raises(GradcheckError, match="failed while testing batched gradient computation"):
        OURS.autograd.gradcheck(scaled(OURS, backward), leaf(OURS), check_batched_grad=True, nondet_tol=10.0)


def test_an_absent_gradient_counts_as_zeros() -> None:
    def call(t: Any) -> Any:
        class Pair(t.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.set_materialize_grads(False)
                return x * 2, x * 3

            @staticmethod
            def backward(ctx: Any, first: Any, second: Any) -> Any:
                if first is None and second is None:
                    return None
                if first is None and float(second.abs().sum()) == 0:
                    return second + 1
                return (0 if first is None else first * 2) + (0 if second is None else second * 3)

        return t.autograd.gradcheck(Pair.apply, leaf(t))

    assert "Expected all input grads to be undefined or zero" in agree(call)


@pytest.mark.parametrize("check", ["gradcheck", "gradgradcheck"])
def test_fast_mode_takes_as_few_passes_as_torchs(check: str) -> None:
    """The number of passes does not depend on the number of elements."""

    def passes(t: Any, size: int) -> int:
        calls: list[Any] = []
        function = scaled(t, lambda grad: calls.append(grad) or grad * 2)
        assert getattr(t.autograd, check)(lambda x: function(x).sin(), (leaf(t, [0.5] * size),), fast_mode=True)
        return len(calls)

    assert passes(OURS, 40) == passes(OURS, 2) <= passes(THEIRS, 40)


@pytest.mark.parametrize("options", MODES, ids=str)
def test_a_function_may_hold_its_inputs_itself(options: dict[str, Any]) -> None:
    """As a module does, whose parameters are given as inputs: they are moved in place."""

    def held(t: Any, detached: bool = False) -> Any:
        x, w = leaf(t), leaf(t, (3.0, -1.0))
        before = w._version
        own = w.detach() if detached else w
        result = t.autograd.gradcheck(lambda x, _: (x * own).sin() + own, (x, w), **options)
        return [result, x.tolist(), w.tolist(), w._version - before]

    agree(held, 1)
    if not options.get("check_forward_ad"):
        agree(lambda t: held(t, True), 1)
