"""``gradcheck`` and ``gradgradcheck`` against torch's: what passes, what fails, and with which words."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from telegrad_engine.errors import GradcheckError

from .twins import OURS, THEIRS

pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning",
    "ignore:Input #0 requires gradient and is not a double:UserWarning",
    "ignore:Backwards compatibility:UserWarning",
)


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
