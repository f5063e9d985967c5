"""Every op of the catalogue against torch: values, dtypes, errors, first and second derivatives.

One test an op. It runs the checks below for each of the op's cases in ``tests/op_cases`` and for several dtypes, and
says of each that fails which it was. ``make test`` leaves some dtypes out; a run that names this file does not:
``make test ARGS="tests/engine/test_ops.py -k conv2d"``.

Internals: tensors without values, with which the SDK predicts shapes, have no public name.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch

import telegrad_engine as tg
from telegrad_engine import autograd
from telegrad_engine.context import state
from telegrad_engine.schema.op import CATALOGUE, Op
from telegrad_engine.tensor.abstract import Meta
from telegrad_engine.tensor.abstract import functions as meta_functions

from ..op_cases import cases_of
from ..op_cases.stand_ins import Case, T
from . import oracle

DTYPES = ("float32", "float64", "int64")
DATA_DEPENDENT = {
    "nonzero",
    "where",
    "masked_select",
    "repeat_interleave",
    "unique",
    "_unique2",
    "unique_consecutive",
    "argwhere",
    "unique_dim",
    "linalg_lstsq",
    "bincount",
    "one_hot",
    "index_put",
    "tensor_split",
}
"""Ops whose result's shape depends on values, for some arguments or always: then no rule can say it."""


class NothingToCompare(Exception):
    """torch has no such value or derivative, or says what depends on values; the text says which."""


def arrays_of(case: Case, dtype: str) -> dict[int, Any]:
    """What the case's tensors hold in this dtype."""
    try:
        return oracle.arrays_of(case, np.dtype(dtype))
    except (ValueError, OverflowError):
        raise NothingToCompare("the case has no values of this dtype") from None


class Both:
    """One case on torch and on ours, from the same numbers; each runs it when its results are first looked at."""

    def __init__(self, op: Op, case: Case, dtype: str, arrays: Any = None) -> None:
        self.op, self.case, self.dtype = op, case, dtype
        if arrays is not None:
            self.arrays = arrays

    @cached_property
    def arrays(self) -> dict[int, Any]:
        """What the case's tensors hold."""
        return arrays_of(self.case, self.dtype)

    @cached_property
    def our_call(self) -> oracle.Call:
        """The call with our tensors."""
        return oracle.with_dtypes(oracle.build(self.case, self.arrays, tg.tensor), tg.dtypes)

    @cached_property
    def ours(self) -> Any:
        """What it gives."""
        found = oracle.attempt(lambda: oracle.our_function(self.op)(*self.our_call.args, **self.our_call.kwargs))
        return found if state.device is None else oracle.with_known_signs(self.op, found, tg.tensor)

    @property
    def their_call(self) -> oracle.Call:
        """The call with torch's tensors."""
        return self._of_torch[0]

    @property
    def theirs(self) -> Any:
        """What that gives."""
        return self._of_torch[1]

    @cached_property
    def _of_torch(self) -> tuple[oracle.Call, Any]:
        with oracle.on_cpu():  # a GPU on which torch has failed may be of no more use to this process
            call, found = self.of_torch()
        if oracle.beside_on_gpu() and not isinstance(found, oracle.Failure):
            there = self.of_torch()
            if not isinstance(there[1], oracle.Failure):  # it lacks some of its ops there
                call, found = there
        return call, found if state.device is None else oracle.with_known_signs(self.op, found, torch.tensor)

    def of_torch(self) -> tuple[oracle.Call, Any]:
        """The call with torch's tensors, and what it gives."""
        call = oracle.with_dtypes(oracle.build(self.case, self.arrays, oracle.make_torch), torch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns where a variance has no degrees of freedom
            return call, oracle.attempt(lambda: oracle.torch_function(self.op)(*call.args, **call.kwargs))

    def assert_same_failure(self) -> bool:
        """Whether torch raises; then ours raised the same built-in class."""
        if isinstance(self.theirs, oracle.Failure):
            assert isinstance(self.ours, oracle.Failure), f"torch raises {self.theirs}"
            assert self.ours.kind is self.theirs.kind, f"{self.ours} is not {self.theirs}"
            return True
        assert not isinstance(self.ours, oracle.Failure), f"torch does not raise {self.ours}"
        return False

    def differentiable(self) -> list[int]:
        """The outputs that gradients can start from."""
        return [i for i, t in enumerate(self.theirs) if torch.is_tensor(t) and t.requires_grad]


def forward(both: Both) -> None:
    """Values, dtypes, requires_grad and errors."""
    if both.assert_same_failure():
        return
    assert len(both.ours) == len(both.theirs)
    for ours, theirs in zip(both.ours, both.theirs, strict=True):
        oracle.assert_close(ours, theirs, "forward")
        assert ours.requires_grad == theirs.requires_grad
        assert ours.is_leaf == theirs.is_leaf


def derivative(both: Both, order: int) -> None:
    """The gradients of all inputs, after which the graph is gone; of the second order, those of the gradients."""
    if isinstance(both.theirs, oracle.Failure) or not both.our_call.inputs:
        raise NothingToCompare("torch has no derivative here")
    starts = both.differentiable()
    if not starts:
        assert not any(t.requires_grad for t in both.ours)
        raise NothingToCompare("torch has no derivative here")
    weights = oracle.random_like([both.theirs[i] for i in starts], seed=1)

    def first(outputs: list[Any], inputs: list[Any], make: Any, grad: Any) -> tuple[list[Any], list[Any]]:
        seeds = [make(w) for w in weights]
        if order == 2:
            for seed in seeds:
                seed.requires_grad_()
        grads = grad([outputs[i] for i in starts], inputs, seeds, create_graph=order == 2, allow_unused=True)
        return list(grads), seeds

    try:
        theirs, their_seeds = first(both.theirs, both.their_call.inputs, torch.tensor, torch.autograd.grad)
    except RuntimeError as error:
        if "invalid gradient" in str(error):
            raise NothingToCompare(
                "torch takes a source larger than its index, and then fails to differentiate"
            ) from error
        with pytest.raises(RuntimeError, match=re.escape(str(error))):
            first(both.ours, both.our_call.inputs, tg.tensor, autograd.grad)
        return
    ours, our_seeds = first(both.ours, both.our_call.inputs, tg.tensor, autograd.grad)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine is None) == (other is None), "only one of the two has a gradient"
        if mine is not None:
            oracle.assert_close(mine, other, "first derivative")
    if order == 2:
        assert_second_derivatives_agree(
            (theirs, [*both.their_call.inputs, *their_seeds]), (ours, [*both.our_call.inputs, *our_seeds])
        )


def assert_second_derivatives_agree(theirs: tuple[list[Any], list[Any]], ours: tuple[list[Any], list[Any]]) -> None:
    present = [i for i, g in enumerate(theirs[0]) if g is not None]
    weights = oracle.random_like([theirs[0][i] for i in present], seed=2)

    def second(grads: list[Any], inputs: list[Any], make: Any, grad: Any) -> list[Any]:
        used = [(grads[i], make(w)) for i, w in zip(present, weights, strict=True) if grads[i].requires_grad]
        if not used:
            return [None] * len(inputs)
        return list(grad([g for g, _ in used], inputs, [w for _, w in used], retain_graph=True, allow_unused=True))

    try:
        expected = second(*theirs, torch.tensor, torch.autograd.grad)
    except RuntimeError as error:
        if not re.fullmatch(r"(the )?derivative for .* is not implemented\.?", str(error)):
            raise
        raise NothingToCompare("torch has no second derivative here") from error
    found = second(*ours, tg.tensor, autograd.grad)
    for mine, other, input in zip(found, expected, theirs[1], strict=True):
        # An absent gradient is a zero one; torch's own rules are not consistent about which they give.
        dtype = oracle.dtype_name(input)
        oracle.assert_close(
            tg.tensor(oracle.zero_or(mine, input), dtype=dtype),
            tg.tensor(oracle.zero_or(other, input), dtype=dtype),
            "second derivative",
        )


def rule(both: Both) -> None:
    """The shape rule alone says the shape, dtype and requires_grad of results and of their gradients."""
    op = both.op
    call = oracle.build(both.case, both.arrays, lambda array: Meta(tg.tensor(array).numpy()))
    call = oracle.with_dtypes(call, tg.dtypes)
    predicted = oracle.attempt(lambda: oracle.our_function(op, meta_functions)(*call.args, **call.kwargs))
    if op.name in DATA_DEPENDENT and isinstance(predicted, oracle.Failure) and " depends on the " in predicted.text:
        raise NothingToCompare("its shape depends on values")
    if isinstance(both.ours, oracle.Failure):
        assert predicted == both.ours
        return
    assert not isinstance(predicted, oracle.Failure), predicted
    assert describe(predicted) == describe(both.ours)
    starts = [i for i, t in enumerate(both.ours) if t.requires_grad]
    if not starts:
        return
    if op.name in ("floor_divide", "heaviside"):
        raise NothingToCompare("torch has no derivative here")
    seeds = [tg.tensor(w) for w in oracle.random_like([both.ours[i] for i in starts], seed=1)]
    for create_graph in (False, True):
        gradients = [
            autograd.grad(
                [outputs[i] for i in starts],
                inputs,
                these,
                retain_graph=True,
                create_graph=create_graph,
                allow_unused=True,
            )
            for outputs, inputs, these in (
                (both.ours, both.our_call.inputs, seeds),
                (predicted, call.inputs, [Meta(s.detach().numpy()) for s in seeds]),
            )
        ]
        assert describe(gradients[1]) == describe(gradients[0])


def describe(tensors: Any) -> list[Any]:
    """What can be known of tensors without values."""
    return [None if t is None else (tuple(t.shape), t.dtype.name, t.requires_grad, t.is_leaf) for t in tensors]


def method(both: Both) -> None:
    """What is a method gives the same as torch's method."""

    def run(make: Any, dtypes: Any) -> Any:
        call = oracle.with_dtypes(oracle.build(both.case, both.arrays, make), dtypes)
        return oracle.attempt(lambda: getattr(call.args[0], both.op.name)(*call.args[1:], **call.kwargs))

    with warnings.catch_warnings(), oracle.on_cpu():
        warnings.simplefilter("ignore")
        theirs = run(torch.tensor, torch)
    ours = run(tg.tensor, tg.dtypes)
    if isinstance(theirs, oracle.Failure):
        assert isinstance(ours, oracle.Failure)
        assert ours.kind is theirs.kind
        return
    for mine, other in zip(ours, theirs, strict=True):
        oracle.assert_close(mine, other, "method")


def truth(both: Both) -> None:
    """What torch answers with a Python bool, so do we: as a function and as a method."""
    ours, theirs = (oracle.build(both.case, both.arrays, make) for make in (tg.tensor, torch.tensor))
    expected = oracle.attempt(lambda: oracle.torch_function(both.op)(*theirs.args, **theirs.kwargs))
    for function in (oracle.our_function(both.op), getattr(tg.Tensor, both.op.name)):
        found = oracle.attempt(lambda function=function: function(*ours.args, **ours.kwargs))
        assert found == expected
        assert isinstance(expected, oracle.Failure) or type(found[0]) is bool


def in_place(both: Both) -> None:
    """The underscore form: value, version, requires_grad and the gradients of all inputs."""
    if not hasattr(both.case.args[0], "make"):
        raise NothingToCompare("the first argument is a number")

    def run(make: Any, dtypes: Any) -> tuple[Any, list[Any], Any]:
        call = oracle.with_dtypes(oracle.build(both.case, both.arrays, make), dtypes)
        target = call.args[0].clone()
        outcome = oracle.attempt(lambda: getattr(target, f"{both.op.name}_")(*call.args[1:], **call.kwargs))
        return outcome, call.inputs, target

    with warnings.catch_warnings(), oracle.on_cpu():
        warnings.simplefilter("ignore")  # of what is in beta
        theirs, their_inputs, _ = run(torch.tensor, torch)
    ours, our_inputs, target = run(tg.tensor, tg.dtypes)
    if isinstance(theirs, oracle.Failure):
        assert isinstance(ours, oracle.Failure), f"torch raises {theirs}"
        assert ours.kind is theirs.kind, f"{ours} is not {theirs}"
        return
    assert not isinstance(ours, oracle.Failure), ours
    assert ours[0] is target
    oracle.assert_close(ours[0], theirs[0], "in place")
    assert ours[0]._version == theirs[0]._version
    assert ours[0].requires_grad == theirs[0].requires_grad
    if theirs[0].requires_grad:
        (weight,) = oracle.random_like(theirs, seed=3)
        try:
            seed = torch.tensor(weight, device="cpu")
            expected = torch.autograd.grad(theirs, their_inputs, seed, allow_unused=True)
        except RuntimeError as error:
            if "invalid gradient" in str(error):
                raise NothingToCompare(
                    "torch takes a source larger than its index, and then fails to differentiate"
                ) from error
            if "inplace version" in str(error):
                raise NothingToCompare(
                    "torch differentiates this only out of place; ours is the same in place"
                ) from error
            with pytest.raises(RuntimeError, match=re.escape(str(error).replace("_ is not", " is not"))):
                autograd.grad(ours, our_inputs, tg.tensor(weight), allow_unused=True)
            return
        found = autograd.grad(ours, our_inputs, tg.tensor(weight), allow_unused=True)
        for mine, other, input in zip(found, expected, their_inputs, strict=True):
            oracle.assert_close(
                tg.tensor(oracle.zero_or(mine, input), dtype=both.dtype),
                tg.tensor(oracle.zero_or(other, input), dtype=both.dtype),
                "gradient",
            )


def comparisons(op: Op, everything: bool) -> Iterator[tuple[int, str, Callable[..., None], dict[str, int]]]:
    """The checks that concern an op: number of the case, dtype, check, and its order. The first derivative comes last.

    Without ``everything``, what is the same kernel once more is left out: the in-place form and the rule in two
    dtypes of three, and derivatives in float32.
    """
    for number, case in enumerate(cases_of(op)):
        for dtype in DTYPES:
            if op.truth:
                yield number, dtype, truth, {}
                continue
            yield number, dtype, forward, {}
            if everything or dtype == "float64":
                yield number, dtype, rule, {}
                if op.inplace:
                    yield number, dtype, in_place, {}
                if op.differentiable and dtype != "int64":
                    yield from ((number, dtype, derivative, {"order": order}) for order in (2, 1))
            if dtype == "float64" and op.method and not op.internal and isinstance(case.args[0], T):
                yield number, dtype, method, {}


def concerns_device(op: Op, number: int, dtype: str, check: Callable[..., None], order: int = 0) -> bool:
    """Whether a comparison says something of a device; of the many some are the same on all devices.

    Held are the values and first derivatives of all cases in float64; of each op's first case also the values in
    float32, the second derivatives and the in-place form, which are the same kernels once more. Of an op that is
    written in others, which are held themselves, two cases are enough, and the derivative of the first.
    """
    if check is forward and dtype == "float32":
        return number == 0 and not op.composite
    if dtype != "float64":
        return False
    if check is derivative:
        return number == 0 if op.composite or order == 2 else True
    if check is in_place:
        return number == 0
    return check is truth or (check is forward and (number < 2 or not op.composite))


def hold(check: Callable[..., None], both: Both, options: dict[str, int]) -> None:
    """Run a check; on a GPU against torch there or, where torch itself differs there, against torch on the CPU.

    It orders equal values otherwise, rounds a sixth to 32 bits in float64, and has cuDNN's limits.
    """
    try:
        with oracle.same_device():
            check(both, **options)
    except (Exception, pytest.fail.Exception) as error:
        if isinstance(error, NothingToCompare) or not oracle.beside_on_gpu():
            raise
        with oracle.on_cpu():
            check(Both(both.op, both.case, both.dtype), **options)


@pytest.mark.every
@pytest.mark.parametrize("op", [op for op in CATALOGUE if cases_of(op)], ids=lambda op: op.key)
def test_op(op: Op, device: str, everything: bool, subtests: pytest.Subtests, record_property: Any) -> None:
    held, of, both = 0, (-1, ""), None
    for number, dtype, check, options in comparisons(op, everything):
        if device != "cpu" and not concerns_device(op, number, dtype, check, **options):
            continue
        if both is None or of != (number, dtype):
            of, both = (number, dtype), Both(op, cases_of(op)[number], dtype)
        try:
            hold(check, both, options)
        except NothingToCompare:
            continue
        except Exception as failure:
            with subtests.test(check.__name__, case=number, dtype=dtype, **options):
                raise failure
        held += 1
    record_property("held", held)


ELSEWHERE = {"empty", "empty_like", "view_scatter", "getitem_scatter", "combination_indices"}
"""Ops tested one by one, in test_special_ops.py."""
WITHIN = {
    "_runs",
    "adaptive_largest",
    "as_lengths",
    "attend",
    "attend_in_blocks",
    "checked_variance",
    "average",
    "bag_places",
    "cdist_in_blocks",
    "ctc_losses",
    "embedded",
    "huber_losses",
    "ctc_losses_backward",
    "largest",
    "listed",
    "gru_layer",
    "lstm_layer",
    "batch_norm_with_moments",
    "rnn_layer",
    "squared_errors",
    "unpooled",
    "unstrided",
    "window_places",
}
"""Ops for which torch has no name, tested through those that are made of them."""


def test_every_op_is_tested() -> None:
    for op in CATALOGUE:
        assert cases_of(op) or op.random or op.key in ELSEWHERE | WITHIN, f"{op.key} needs cases, or a test of its own"
        assert op.doc, f"{op.key} needs a line of documentation"


def test_names_are_those_of_torch() -> None:
    for op in CATALOGUE:
        if op.internal or op.name == "getitem":
            continue
        oracle.torch_function(op)
        for name in (op.name, *op.aliases):
            assert not op.method or hasattr(torch.Tensor, name), f"Tensor.{name}"
            assert not op.inplace or hasattr(torch.Tensor, f"{name}_"), f"Tensor.{name}_"
