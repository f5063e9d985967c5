"""Infinities and NaN in every op's first derivative, against torch: as gradients that arrive, and among the inputs."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import telegrad_engine as tg
from telegrad_engine import autograd
from telegrad_engine.schema.op import CATALOGUE, Op

from ..op_cases import cases_of
from ..op_cases.stand_ins import Case, T
from . import oracle
from .test_ops import Both, NothingToCompare, arrays_of

MIXED, INFINITE, NAN = (math.inf, -math.inf, math.nan), (math.inf,), (math.nan,)
"""The values that are put among ordinary ones."""
GRADIENTS = [(MIXED, 0.3), (MIXED, 0.5), (INFINITE, 0.3)]
INPUTS = [(NAN, 0.2), (MIXED, 0.3), (INFINITE, 0.2)]
"""The values, and the share of elements that they replace."""


PRODUCTS = "other terms are multiplied and summed in another order, and infinity minus infinity or times 0 is NaN"
KERNEL = "torch's kernel multiplies by its 0 or 1 last, where ours selects"
OTHER_GRADIENTS = {
    **dict.fromkeys(["linalg_det", "det", "linalg_slogdet", "slogdet", "linalg_tensorsolve", "linalg_eigh"], PRODUCTS),
    **dict.fromkeys(["logcumsumexp", "trapezoid.dx", "layer_norm", "group_norm", "conv_tbc"], PRODUCTS),
    **dict.fromkeys(["gru", "gru_cell", "grid_sample", "grid_sampler", "scaled_dot_product_attention"], PRODUCTS),
    **dict.fromkeys(["multi_margin_loss", "multilabel_margin_loss", "quantile", "nanquantile"], KERNEL),
}
"""Ops whose derivative differs from torch's for some gradients that are not finite, and why."""
LAPACK = "what a decomposition gives for a matrix that is not finite is not specified"
OUTSIDE = "torch reads outside its memory at a place that is NaN"
QUOTIENT = "torch divides the product by each element, which is NaN where ours multiplies the other elements"
WHICH = "which one of equal elements or of several NaN is chosen is not specified"
TAIL = "torch's vectorized kernel, as which ours treats NaN, and its kernel for the last elements differ"
SIGN = "the sign of NaN is 0 in torch, except in this kernel"
LIMIT = "torch gives NaN at infinity, where ours gives the limit"
OTHER_INPUTS = {
    **dict.fromkeys(["linalg_det", "linalg_slogdet", "linalg_solve", "linalg_tensorinv", "linalg_tensorsolve"], LAPACK),
    **dict.fromkeys(["det", "slogdet", "logdet", "cholesky_solve", "cholesky_inverse"], LAPACK),
    **dict.fromkeys(["grid_sample", "grid_sampler", "grid_sampler_3d"], OUTSIDE),
    **dict.fromkeys(["prod", "prod.dim", "cumprod", "scatter_reduce"], QUOTIENT),
    **dict.fromkeys(["topk", "kthvalue", "mode"], WHICH),
    **dict.fromkeys(["hardtanh", "relu6", "hardshrink", "softshrink", "hardswish", "elu", "celu", "selu"], TAIL),
    **dict.fromkeys(["cdist", "pdist"], SIGN),
    **dict.fromkeys(["digamma", "polygamma", "soft_margin_loss"], LIMIT),
    **dict.fromkeys(["logcumsumexp", "layer_norm", "group_norm", "instance_norm", "ctc_loss"], PRODUCTS),
    **dict.fromkeys(["gaussian_nll_loss", "scaled_dot_product_attention"], PRODUCTS),
}
"""Ops whose derivative differs from torch's for some inputs that are not finite, and why."""
REFUSED = "the input matrix contained non-finite values"
"""Ours refuses some matrices for which torch's result is not specified."""


def mixed_in(values: tuple[float, ...], share: float, seed: int, array: np.ndarray, number: int) -> np.ndarray:
    """The array, of which there are several, with some elements, at least one, replaced by the values in turn."""
    flat = np.array(array).reshape(-1)
    places = np.random.default_rng(seed + 10 * number).permutation(flat.size)[: max(1, int(flat.size * share))]
    flat[places] = list(itertools.islice(itertools.cycle(values), len(places)))
    return flat.reshape(array.shape)


def prepared(op: Op, case: Case, change_input: Any) -> Both:
    """A case with changed inputs, in both."""
    arrays = arrays_of(case, "float64")
    if not all(array.size for array in arrays.values()):
        raise NothingToCompare("no elements")
    differentiable = [
        id(x)
        for x in oracle.leaves([*case.args, *case.kwargs.values()])
        if isinstance(x, T) and not x.constant and arrays[id(x)].dtype.kind == "f"
    ]
    for number, key in enumerate(differentiable):
        arrays[key] = change_input(arrays[key], number)
    return Both(op, case, "float64", arrays)


def gradients(both: Both, change_grad: Any) -> tuple[list[Any], list[Any]]:
    """Our gradients of a case's inputs and torch's, with changes made to output gradients; the graphs stay."""
    starts = [] if isinstance(both.theirs, oracle.Failure) else both.differentiable()
    if not starts or not both.our_call.inputs:
        raise NothingToCompare("torch has no derivative here")
    if isinstance(both.ours, oracle.Failure):
        assert REFUSED in both.ours.text
        raise NothingToCompare(REFUSED)
    weights = oracle.random_like([both.theirs[i] for i in starts], seed=1)
    weights = [change_grad(weight, number) for number, weight in enumerate(weights)]
    try:
        theirs = torch.autograd.grad(
            [both.theirs[i] for i in starts],
            both.their_call.inputs,
            [torch.tensor(w) for w in weights],
            retain_graph=True,
            allow_unused=True,
        )
    except RuntimeError as error:
        raise NothingToCompare("torch has no derivative here") from error
    ours = autograd.grad(
        [both.ours[i] for i in starts],
        both.our_call.inputs,
        [tg.tensor(w) for w in weights],
        retain_graph=True,
        allow_unused=True,
    )
    return list(ours), list(theirs)


def compare(op: Op, kinds: list[Any], everything: bool, subtests: pytest.Subtests, at_input: bool) -> None:
    """Compare the gradients of an op's cases with torch's; of few of them, unless ``everything`` is wanted.

    The values are put among those of the inputs or among the gradients of the outputs.
    """
    for number, case in enumerate(cases_of(op)[: None if everything else 2]):
        both: Both | None = None
        for seed, (values, share) in enumerate(kinds if everything else kinds[:1]):
            mix = partial(mixed_in, values, share, seed)
            try:
                if both is None or at_input:
                    both = prepared(op, case, mix if at_input else unchanged)
                hold(*gradients(both, unchanged if at_input else mix))
            except NothingToCompare:
                continue
            except Exception as failure:
                with subtests.test(case=number, values=values):
                    raise failure


def hold(ours: list[Any], theirs: list[Any], what: str = "derivative") -> None:
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine is None) == (other is None), f"only one of the two has a {what}"
        if mine is not None:
            oracle.assert_close(mine, other, what)


def unchanged(array: np.ndarray, _: int) -> np.ndarray:
    return array


def ops_besides(others: dict[str, str]) -> list[Op]:
    return [op for op in CATALOGUE if op.differentiable and cases_of(op) and op.key not in others]


@pytest.mark.full
@pytest.mark.parametrize("op", ops_besides(OTHER_GRADIENTS), ids=lambda op: op.key)
def test_gradients_that_are_not_finite(op: Op, everything: bool, subtests: pytest.Subtests) -> None:
    compare(op, GRADIENTS, everything, subtests, at_input=False)


@pytest.mark.every
@pytest.mark.parametrize("op", ops_besides(OTHER_INPUTS), ids=lambda op: op.key)
def test_inputs_that_are_not_finite(op: Op, everything: bool, subtests: pytest.Subtests) -> None:
    compare(op, INPUTS, everything, subtests, at_input=True)


class Torch:
    """torch's functions under one name each."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name, None) or getattr(torch.nn.functional, name)


OF_ONE = (
    "relu relu6 hardtanh hardsigmoid hardswish hardshrink softshrink leaky_relu elu celu selu gelu silu mish "
    "logsigmoid softplus softsign tanhshrink glu abs sinc nan_to_num logit frac max min median amax amin"
)
OF_TWO = "maximum minimum fmax fmin huber_loss smooth_l1_loss l1_loss hypot copysign"
ALONG = ("max", "min", "median")
SELECTIONS: dict[str, Any] = {
    **{name: lambda F, make, x, y, name=name: getattr(F, name)(x) for name in OF_ONE.split()},
    **{f"{name} along": lambda F, make, x, y, name=name: getattr(F, name)(x, 1)[0] for name in ALONG},
    **{name: lambda F, make, x, y, name=name: getattr(F, name)(x, y) for name in OF_TWO.split()},
    "clamp": lambda F, make, x, y: F.clamp(x, -0.5, 0.5),
    "threshold": lambda F, make, x, y: F.threshold(x, 0.5, 2.0),
    "where": lambda F, make, x, y: F.where(y > 0, x, 0.0),
    "masked_fill": lambda F, make, x, y: F.masked_fill(x, y > 0, 0.0),
    "max_pool1d": lambda F, make, x, y: F.max_pool1d(x, 2),
    "cumprod": lambda F, make, x, y: F.cumprod(F.where(make(np.arange(64) % 5 == 3), 0.0, x), 1),
    "cross_entropy": lambda F, make, x, y: F.cross_entropy(
        x, make(np.arange(16) % 3), make(np.where(np.arange(64) % 3, 0.5, 0.0).astype(x.detach().numpy().dtype))
    ),
}
"""Selections from matrices whose rows fill the vectors of torch's kernels."""


@pytest.mark.parametrize("name", SELECTIONS)
def test_selections_from_long_rows(name: str) -> None:
    for dtype in ("float32", "float64"):
        for what in ("gradient", "input"):
            if name == "cumprod" and what == "input":
                continue  # QUOTIENT
            if name == "hardsigmoid" and dtype == "float64":
                continue  # torch's derivative has the precision of float32
            hold_selection(name, dtype, what)


def hold_selection(name: str, dtype: str, what: str) -> None:
    x, y, weight = (np.random.default_rng(seed).standard_normal((16, 64)).astype(dtype) for seed in range(3))
    y[:, ::7] = x[:, ::7]
    mix = partial(mixed_in, NAN if what == "input" else MIXED, 0.1, 0)
    weight, x = (mix(weight, 0), x) if what == "gradient" else (weight, mix(x, 0))
    found = []
    for F, make, grad in ((tg.functions, tg.tensor, autograd.grad), (Torch(), torch.tensor, torch.autograd.grad)):
        inputs = [make(array).requires_grad_() for array in (x, y)]
        result = SELECTIONS[name](F, make, *inputs)
        size = math.prod(result.shape)
        found.append(grad([result], inputs, [make(weight.reshape(-1)[:size].reshape(result.shape))], allow_unused=True))
    hold(*found, f"derivative in {dtype} beside a {what} that is not finite")


LAYOUTS: dict[str, Any] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t(),
    "strided": lambda x: x[:, ::2],
    "broadcast": lambda x: x[:1].expand(6, 8),
    "a row": lambda x: x[0],
    "a number": lambda x: x[0, 0],
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64"])
def test_where_beside_zero(dtype: str) -> None:
    for layout in LAYOUTS:
        for zero in (0, 0.0, -0.0):
            hold_where(zero, layout, dtype)


def hold_where(zero: float, layout: str, dtype: str) -> None:
    values = [1.0, -0.0, 0.0, -2.5] if dtype == "int64" else [1.0, -0.0, math.inf, -math.inf, math.nan, -2.5]
    numbers = list(itertools.islice(itertools.cycle(values), 48))
    found = []
    for make, library, where in ((tg.tensor, tg.dtypes, tg.functions.where), (torch.tensor, torch, torch.where)):
        x = LAYOUTS[layout](make(numbers).to(getattr(library, dtype)).reshape(6, 8))
        condition = make([True, False, True, True, False, False, True, False])[: x.shape[-1] if x.ndim else None]
        found += [[where(condition, x, zero), where(condition, zero, x)]]
    for ours, theirs in zip(*found, strict=True):
        what = f"where beside {zero}, {layout}"
        oracle.assert_close(ours, theirs, what)
        signs = [np.signbit(x) & (x == x) for x in (oracle.numpy(ours), oracle.numpy(theirs))]
        np.testing.assert_array_equal(*signs, err_msg=what)


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("name", ["svd", "svdvals", "pinv", "matrix_rank", "cond", "lstsq"])
def test_singular_values_of_a_matrix_that_is_not_finite_are_refused(name: str, value: float) -> None:
    matrix = tg.tensor([[1.0, 2.0, 3.0], [4.0, value, 6.0], [7.0, 8.0, 10.0]])
    inputs = (matrix, tg.tensor([[1.0], [2.0], [3.0]])) if name == "lstsq" else (matrix,)
    with pytest.raises(tg.errors.LinAlgError, match=REFUSED):
        getattr(tg.functions, f"linalg_{name}")(*inputs)
