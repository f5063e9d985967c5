"""Every op of the catalogue against torch: values, dtypes, errors, first and second derivatives.

The cases stand beside the ops; here they are run, on torch and on ours, for three dtypes.
"""

from __future__ import annotations

import re
import warnings
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

CASES = [(op, case) for op in CATALOGUE for case in cases_of(op) if not op.truth]
TRUTHS = [(op, case) for op in CATALOGUE for case in cases_of(op) if op.truth]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # Where there is a derivative, test_forward holds; here only those are of interest.
    derivative = metafunc.function is test_derivative
    if "case" in metafunc.fixturenames:
        cases = [(op, case) for op, case in CASES if op.differentiable or not derivative]
        names = [f"{op.key}-{cases_of(op).index(case)}" for op, case in cases]
        metafunc.parametrize(("op", "case"), cases, ids=names)
    if "dtype" in metafunc.fixturenames:
        metafunc.parametrize("dtype", DTYPES[:2] if derivative else DTYPES)


class Both:
    """One case run on torch and on ours, from the same numbers."""

    def __init__(self, op: Op, case: Case, dtype: str) -> None:
        try:
            self.arrays = oracle.arrays_of(case, np.dtype(dtype))
        except (ValueError, OverflowError):
            pytest.skip("the case has no values of this dtype")
        self.op, self.case = op, case
        self.our_call = oracle.with_dtypes(oracle.build(case, self.arrays, tg.tensor), tg.dtypes)
        self.their_call = oracle.with_dtypes(oracle.build(case, self.arrays, torch.tensor), torch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns where a variance has no degrees of freedom
            self.theirs = oracle.attempt(
                lambda: oracle.torch_function(op)(*self.their_call.args, **self.their_call.kwargs)
            )
        self.ours = oracle.attempt(lambda: oracle.our_function(op)(*self.our_call.args, **self.our_call.kwargs))
        if state.device is not None:
            self.theirs = oracle.with_known_signs(op, self.theirs, torch.tensor)
            self.ours = oracle.with_known_signs(op, self.ours, tg.tensor)

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


def test_forward(op: Op, case: Case, dtype: str, record_property: Any) -> None:
    both = Both(op, case, dtype)
    record_property("held", 1)
    if both.assert_same_failure():
        return
    assert len(both.ours) == len(both.theirs)
    for ours, theirs in zip(both.ours, both.theirs, strict=True):
        oracle.assert_close(ours, theirs, "forward")
        assert ours.requires_grad == theirs.requires_grad
        assert ours.is_leaf == theirs.is_leaf


@pytest.mark.parametrize("order", [1, 2])
def test_derivative(op: Op, case: Case, dtype: str, order: int, record_property: Any) -> None:
    both = Both(op, case, dtype)
    if isinstance(both.theirs, oracle.Failure) or not both.our_call.inputs:
        pytest.skip("torch has no derivative here")
    starts = both.differentiable()
    if not starts:
        assert not any(t.requires_grad for t in both.ours)
        pytest.skip("torch has no derivative here")
    record_property("held", 1)
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
            pytest.skip("torch takes a source larger than its index, and then fails to differentiate")
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
        return list(grad([g for g, _ in used], inputs, [w for _, w in used], allow_unused=True))

    try:
        expected = second(*theirs, torch.tensor, torch.autograd.grad)
    except RuntimeError as error:
        if not re.fullmatch(r"(the )?derivative for .* is not implemented\.?", str(error)):
            raise
        pytest.skip("torch has no second derivative here")
    found = second(*ours, tg.tensor, autograd.grad)
    for mine, other, input in zip(found, expected, theirs[1], strict=True):
        # An absent gradient is a zero one; torch's own rules are not consistent about which they give.
        dtype = oracle.dtype_name(input)
        oracle.assert_close(
            tg.tensor(oracle.zero_or(mine, input), dtype=dtype),
            tg.tensor(oracle.zero_or(other, input), dtype=dtype),
            "second derivative",
        )


def test_rule_predicts_execution(op: Op, case: Case, dtype: str, record_property: Any) -> None:
    """The shape rule alone says the shape, dtype and requires_grad of results and of their gradients."""
    both = Both(op, case, dtype)
    call = oracle.build(case, both.arrays, lambda array: Meta(tg.tensor(array)._data))
    call = oracle.with_dtypes(call, tg.dtypes)
    predicted = oracle.attempt(lambda: oracle.our_function(op, meta_functions)(*call.args, **call.kwargs))
    if op.name in DATA_DEPENDENT and isinstance(predicted, oracle.Failure) and " depends on the " in predicted.text:
        pytest.skip("its shape depends on values")
    record_property("held", 1)
    if isinstance(both.ours, oracle.Failure):
        assert predicted == both.ours
        return
    assert not isinstance(predicted, oracle.Failure), predicted
    assert describe(predicted) == describe(both.ours)
    starts = [i for i, t in enumerate(both.ours) if t.requires_grad]
    if not starts:
        return
    if op.name in ("floor_divide", "heaviside"):
        pytest.skip("torch has no derivative here")
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
                (predicted, call.inputs, [Meta(s._data) for s in seeds]),
            )
        ]
        assert describe(gradients[1]) == describe(gradients[0])


def describe(tensors: Any) -> list[Any]:
    """What can be known of tensors without values."""
    return [None if t is None else (tuple(t.shape), t.dtype.name, t.requires_grad, t.is_leaf) for t in tensors]


METHODS = [(op, case) for op, case in CASES if op.method and not op.internal and isinstance(case.args[0], T)]


@pytest.mark.parametrize(
    ("called", "arguments"), METHODS, ids=[f"{op.key}-{cases_of(op).index(c)}" for op, c in METHODS]
)
def test_method_form(called: Op, arguments: Case, record_property: Any) -> None:
    """What is a method gives the same as torch's method."""
    arrays = oracle.arrays_of(arguments, np.dtype("float64"))

    def run(make: Any, dtypes: Any) -> Any:
        call = oracle.with_dtypes(oracle.build(arguments, arrays, make), dtypes)
        return oracle.attempt(lambda: getattr(call.args[0], called.name)(*call.args[1:], **call.kwargs))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = run(torch.tensor, torch)
    ours = run(tg.tensor, tg.dtypes)
    record_property("held", 1)
    if isinstance(theirs, oracle.Failure):
        assert isinstance(ours, oracle.Failure)
        assert ours.kind is theirs.kind
        return
    for mine, other in zip(ours, theirs, strict=True):
        oracle.assert_close(mine, other, "method")


@pytest.mark.parametrize(("asking", "arguments"), TRUTHS, ids=[f"{op.key}-{cases_of(op).index(c)}" for op, c in TRUTHS])
@pytest.mark.parametrize("kind", DTYPES)
def test_truth(asking: Op, arguments: Case, kind: str, record_property: Any) -> None:
    """What torch answers with a Python bool, so do we: as a function and as a method."""
    try:
        arrays = oracle.arrays_of(arguments, np.dtype(kind))
    except (ValueError, OverflowError):
        pytest.skip("the case has no values of this dtype")
    record_property("held", 1)
    ours, theirs = (oracle.build(arguments, arrays, make) for make in (tg.tensor, torch.tensor))
    expected = oracle.attempt(lambda: oracle.torch_function(asking)(*theirs.args, **theirs.kwargs))
    for function in (oracle.our_function(asking), getattr(tg.Tensor, asking.name)):
        found = oracle.attempt(lambda function=function: function(*ours.args, **ours.kwargs))
        assert found == expected
        assert isinstance(expected, oracle.Failure) or type(found[0]) is bool


IN_PLACE = [(op, case) for op, case in CASES if op.inplace]


@pytest.mark.parametrize(
    ("changing", "arguments"), IN_PLACE, ids=[f"{op.key}-{cases_of(op).index(c)}" for op, c in IN_PLACE]
)
@pytest.mark.parametrize("kind", DTYPES)
def test_in_place(changing: Op, arguments: Case, kind: str, record_property: Any) -> None:
    """The underscore form: value, version, requires_grad and the gradients of all inputs."""
    try:
        arrays = oracle.arrays_of(arguments, np.dtype(kind))
    except (ValueError, OverflowError):
        pytest.skip("the case has no values of this dtype")
    if not hasattr(arguments.args[0], "make"):
        pytest.skip("the first argument is a number")

    def run(make: Any, dtypes: Any) -> tuple[Any, list[Any], Any]:
        call = oracle.with_dtypes(oracle.build(arguments, arrays, make), dtypes)
        target = call.args[0].clone()
        outcome = oracle.attempt(lambda: getattr(target, f"{changing.name}_")(*call.args[1:], **call.kwargs))
        return outcome, call.inputs, target

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is in beta
        theirs, their_inputs, _ = run(torch.tensor, torch)
    ours, our_inputs, target = run(tg.tensor, tg.dtypes)
    record_property("held", 1)
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
            expected = torch.autograd.grad(theirs, their_inputs, torch.tensor(weight), allow_unused=True)
        except RuntimeError as error:
            if "invalid gradient" in str(error):
                pytest.skip("torch takes a source larger than its index, and then fails to differentiate")
            if "inplace version" in str(error):
                pytest.skip("torch differentiates this only out of place; ours is the same in place")
            with pytest.raises(RuntimeError, match=re.escape(str(error).replace("_ is not", " is not"))):
                autograd.grad(ours, our_inputs, tg.tensor(weight), allow_unused=True)
            return
        found = autograd.grad(ours, our_inputs, tg.tensor(weight), allow_unused=True)
        for mine, other, input in zip(found, expected, their_inputs, strict=True):
            oracle.assert_close(
                tg.tensor(oracle.zero_or(mine, input), dtype=kind),
                tg.tensor(oracle.zero_or(other, input), dtype=kind),
                "gradient",
            )


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


@pytest.mark.parametrize("op", list(CATALOGUE), ids=lambda op: op.key)
def test_every_op_is_tested(op: Op) -> None:
    assert cases_of(op) or op.random or op.key in ELSEWHERE | WITHIN, "an op needs cases, or a test of its own"
    assert op.doc, "an op needs a line of documentation"


@pytest.mark.parametrize("op", [o for o in CATALOGUE if not o.internal], ids=lambda op: op.key)
def test_names_are_those_of_torch(op: Op) -> None:
    if op.name in ("getitem",):
        return
    oracle.torch_function(op)
    for name in (op.name, *op.aliases):
        if op.method:
            assert hasattr(torch.Tensor, name), f"Tensor.{name}"
        if op.inplace:
            assert hasattr(torch.Tensor, f"{name}_"), f"Tensor.{name}_"
