"""The keyword arguments ``out`` and ``generator``, which torch's functions take besides the parameters of their ops.

``out=`` writes the result of an op to existing tensors. As in torch, gradients must not be tracked, the result must be
castable to the tensor's dtype, and changing the tensor's shape warns. With ``generator=``, random ops draw from a
Generator's own state.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from telegrad_engine.context import GENERATOR_STATE_SIZE, no_grad, state
from telegrad_engine.dtypes import can_cast
from telegrad_engine.errors import DTypeMismatch, InvalidArgument, InvalidOperation
from telegrad_engine.schema.op import CATALOGUE, PREFIXES, choose
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.documentation import document_added, option
from telegrad_engine.tensor.memory import check_overlap
from telegrad_engine.tensor.namespace import Functions

from ..sessions.generators import Generator
from ..tape.recorder import Recorder
from .handle import Tensor, recorder_of, result_of

LINALG = PREFIXES["torch.linalg"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


WITHOUT_OUT = _names(
    "adaptive_avg_pool1d adjoint allclose alpha_dropout argwhere as_strided_scatter atleast_1d atleast_2d "
    "atleast_3d avg_pool1d bilinear bincount block_diag broadcast_tensors broadcast_to cartesian_prod cdist celu "
    "channel_shuffle clone combinations conv_tbc conj constant_pad_nd conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d conv_transpose3d convolution corrcoef count_nonzero cov cumulative_trapezoid det diag_embed "
    "diagflat diagonal_scatter dist dsplit einsum empty_like equal feature_dropout flatten flip fliplr flipud "
    "full_like gradient grid_sampler grid_sampler_2d grid_sampler_3d gru gru_cell hsplit index_fill index_put "
    "isclose isfinite isinf isnan isreal linalg_diagonal logdet lstm lstm_cell masked_fill masked_scatter "
    "max_pool1d max_pool2d max_pool3d meshgrid moveaxis movedim native_channel_shuffle native_dropout "
    "norm_except_dim ones_like pairwise_distance pdist pinverse pixel_shuffle pixel_unshuffle positive prelu put "
    "rand_like randint_like randn_like ravel relu repeat_interleave reshape reshape_as resolve_conj resolve_neg "
    "rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell roll rot90 rsub select_scatter selu split_with_sizes std_mean "
    "sum_to_size tensor_split tile trace trapezoid trapz tril_indices triu_indices unflatten unique "
    "unique_consecutive unravel_index unsafe_chunk unsafe_split unsafe_split_with_sizes vander var_mean view_as "
    "vsplit zeros_like"
)
"""The functions that take no ``out``, apart from views, which never do."""
EXACT = _names(
    "addbmm addmm addmv argmax argmin argsort baddbmm bmm bucketize cholesky cross cummax cummin diag dot gather "
    "histc index_add index_copy index_select inner inverse kron kthvalue log_softmax logsumexp masked_select matmul "
    "max median min mm mode mv nanmedian nonzero outer qr scatter scatter_add scatter_reduce searchsorted softmax "
    "sort svd take tensordot topk tril triu vdot"
)
"""The functions that write only their own dtype, not one that it can be cast to; linalg's functions do the same."""
RESIZED = (
    "An output with one or more elements was resized since it had shape {}, which does not match the required output "
    "shape {}. This behavior is deprecated, and in a future PyTorch release outputs will not be resized unless they "
    "have zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero elements with "
    "t.resize_(0)."
)


def takes_out(name: str) -> bool:
    """Whether the catalogue's function with this name takes ``out``."""
    overloads = CATALOGUE.overloads.get(name)
    if overloads is None or name in WITHOUT_OUT:
        return False
    op = overloads[0]
    return op.namespace in ("torch", "torch.linalg") and not (op.internal or op.view or op.truth)


def taking_out(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``function`` so that it also writes its result to tensors given as ``out``."""
    shown = name.removeprefix(LINALG) if name.startswith(LINALG) else name

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "out" not in kwargs:
            return function(*args, **kwargs)
        out = kwargs.pop("out")
        if out is None:
            return function(*args, **kwargs)
        targets = _targets(shown, out)
        _check_untracked(shown, (*args, *kwargs.values(), *targets))
        with no_grad():
            result = function(*args, **kwargs)
            results = list(result) if isinstance(result, tuple) else [result]
            _check_count(shown, results, targets, out)
            exact = name in EXACT or name.startswith(LINALG)
            for value, target in zip(results, targets, strict=True):
                _check_dtype(shown, value, target, exact, kwargs)
            _check_overlaps(name, args, kwargs, targets)
            for value, target in zip(results, targets, strict=True):
                _write(value, target)
        return type(result)(*targets) if hasattr(result, "_fields") else out

    return document_added(call, option("out"))


def _targets(name: str, out: Any) -> Sequence[Tensor]:
    targets = out if isinstance(out, (tuple, list)) else (out,)
    for target in targets:
        if not isinstance(target, Tensor):
            raise InvalidArgument(f"{name}(): argument 'out' must be Tensor, not {type(target).__name__}")
    return targets


def _check_untracked(name: str, values: Sequence[Any]) -> None:
    if not state.grad_enabled:
        return
    for value in values:
        parts = value if isinstance(value, (tuple, list)) else (value,)
        if any(isinstance(part, Tensor) and part.requires_grad for part in parts):
            raise InvalidOperation(
                f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
                "arguments requires grad."
            )


def _check_count(name: str, results: Sequence[Any], targets: Sequence[Tensor], out: Any) -> None:
    if len(results) == len(targets) and (len(results) == 1) == isinstance(out, Tensor):
        return
    wanted = "Tensor" if len(results) == 1 else "tuple of Tensors"
    raise InvalidArgument(f"{name}(): argument 'out' must be {wanted}, not {type(out).__name__}")


def _check_dtype(name: str, value: Tensor, target: Tensor, exact: bool, kwargs: Any) -> None:
    own, wanted = value.dtype, target.dtype
    if own is wanted:
        return
    if CATALOGUE.overloads[name][0].factory if name in CATALOGUE.overloads else False:
        if kwargs.get("dtype") is None:
            return
        raise InvalidOperation(f"dtype {own.kernel_name} does not match dtype of out parameter ({wanted.kernel_name})")
    if exact:
        raise DTypeMismatch(f"Expected out tensor to have dtype {own.c_name}, but got {wanted.c_name} instead")
    if not can_cast(own.numpy, wanted.numpy):
        raise DTypeMismatch(
            f"result type {own.kernel_name} can't be cast to the desired output type {wanted.kernel_name}"
        )


def _check_overlaps(name: str, args: Any, kwargs: Any, targets: Sequence[Tensor]) -> None:
    """Raise if a target overlaps itself or an input where torch checks it: for elementwise and in-place ops."""
    op, inputs, _ = choose(name, CATALOGUE.overloads[name], args, kwargs)
    if op.overlap.itself and (op.pointwise or op.inplace):
        for target in targets:
            check_overlap(op, target, (target, *inputs[1:]))
            check_overlap(CATALOGUE.get("copy"), target, (target, inputs[0]))


def _write(value: Tensor, target: Tensor) -> None:
    if tuple(value.shape) == tuple(target.shape):
        target.copy_(value)
        return
    if target.numel():
        text = RESIZED.format(list(target.shape), list(value.shape))
        warnings.warn(text, stacklevel=4)
    target.data = value.to(dtype=target.dtype, copy=True)


def public_functions() -> list[str]:
    """List the catalogue's functions of the ``torch`` namespace."""
    return [
        name
        for name, overloads in CATALOGUE.overloads.items()
        if not name.startswith("_") and overloads[0].namespace == "torch" and not overloads[0].internal
    ]


def install_out(functions: Functions) -> None:
    """Make functions accept ``out``."""
    functions.add_wrapper(lambda name, function: taking_out(name, function) if takes_out(name) else function)


RANDOM_FUNCTIONS = frozenset([op.name for op in CATALOGUE if op.random and not op.internal])
"""The functions for which torch accepts a generator."""
RANDOM_METHODS = frozenset(
    [op.name for op in CATALOGUE if op.random and op.method and not op.internal]
    + [f"{op.name}_" for op in CATALOGUE if op.random and op.inplace]
)
"""The methods for which torch accepts a generator."""


def state_of(recorder: Recorder, kind: type[Tensor] = Tensor) -> Tensor:
    """Return the state of a session's generator."""
    return result_of(recorder, "get_rng_state", (), Spec((GENERATOR_STATE_SIZE,), np.dtype(np.uint8)), cls=kind)


@contextmanager
def from_generator(recorder: Recorder, generator: Generator) -> Iterator[None]:
    """Within the block, let the session draw from ``generator``, and keep the generator's new state.

    The session has one generator. The draw is wrapped in instructions that swap the other one's state in and out;
    nothing is fetched.
    """
    with recorder.lock:  # no other thread draws in between
        before, own = state_of(recorder), generator.states.get(recorder)
        if own is None:
            recorder.emit("manual_seed", (), (), {"seed": generator.initial_seed()})
        else:
            recorder.emit("set_rng_state", [own._id])
        try:
            yield
        finally:
            generator.states[recorder] = state_of(recorder)
            recorder.emit("set_rng_state", [before._id])


def taking_generator(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``function`` so that it accepts a ``generator``."""

    @functools.wraps(function)
    def draw(*args: Any, generator: Generator | None = None, **kwargs: Any) -> Any:
        if generator is None:
            return function(*args, **kwargs)
        if not isinstance(generator, Generator):
            raise TypeError(f"generator must be a Generator, not {type(generator).__name__}")
        with from_generator(recorder_of(args), generator):
            return function(*args, **kwargs)

    return document_added(draw, option("generator"))


def install_generators(cls: type[Tensor], functions: Functions) -> None:
    """Make functions and the methods of ``cls`` accept generators."""
    functions.add_wrapper(lambda name, function: taking_generator(function) if name in RANDOM_FUNCTIONS else function)
    for name in RANDOM_METHODS:
        if hasattr(cls, name):
            setattr(cls, name, taking_generator(getattr(cls, name)))
