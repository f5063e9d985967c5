"""Connectionist temporal classification (Graves et al. 2006): the loss of a sequence without an alignment."""

from __future__ import annotations

import math
from typing import Any

from ...cancellation import check_cancelled
from ...dtypes import float32, float64, int64
from ...errors import InvalidOperation, ShapeMismatch
from ...schema.declaration import INTERNAL, NN_FUNCTION, PRIVATE, scratch
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Int, Ints, Reduction
from ...schema.promotion import FLOAT32_ON_CPU
from ...shapes import Spec, wrap_dim
from ..batching import nn_rules
from ..guards import no_kernel
from .classification_loss import check_reduction, reduce_loss


def _while_checking(text: str) -> str:
    return f"{text} (while checking arguments for ctc_loss_allocate_outputs)"


def _loss_rule(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int) -> Spec:
    shape, ndim, dims = log_probs.shape, len(log_probs.shape), len(targets.shape)
    named_lengths = (("input_lengths", input_lengths), ("target_lengths", target_lengths))
    for name, lengths in named_lengths:
        if lengths.dtype.kind not in "iu":
            raise InvalidOperation(f"{name} must be integral")
    if 0 in shape:
        raise InvalidOperation("log_probs tensor must not be empty")
    if log_probs.dtype not in (float32.numpy, float64.numpy):
        raise no_kernel("ctc_loss_cpu", log_probs)
    wrap_dim(1, ndim)
    if ndim != 3:
        text = f"Expected 3-dimensional tensor, but got {ndim}-dimensional tensor for argument #1 'log_probs'"
        raise ShapeMismatch(_while_checking(text))
    if not 0 <= blank < shape[2]:
        raise InvalidOperation("blank must be in label range")
    for name, lengths in named_lengths:
        if lengths.shape != (shape[1],):
            raise ShapeMismatch(f"{name} must be of size batch_size")
    if dims not in (1, 2):
        text = f"Expected 1 to 2 dimensions, but got {dims}-dimensional tensor for argument #2 'targets'"
        raise ShapeMismatch(_while_checking(text))
    if dims == 2 and targets.shape[0] != shape[1]:
        raise _wrong_size(0, str(shape[1]), targets)
    return Spec((shape[1],), log_probs.dtype)


def _wrong_size(dim: int, wanted: str, targets: Any) -> ShapeMismatch:
    found = f"got size {targets.shape[dim]} for argument #2 'targets'"
    return ShapeMismatch(_while_checking(f"Expected tensor to have size {wanted} at dimension {dim}, but {found}"))


def _check_lengths(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any) -> None:
    for name, lengths in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if (least := int(lengths.min())) < 0:
            raise InvalidOperation(_while_checking(f"Expected {name} to have value at least 0, but got value {least}"))
    longest, steps = int(input_lengths.max()), log_probs.shape[0]
    if longest > steps:
        text = f"Expected input_lengths to have value at most {steps}, but got value {longest}"
        raise InvalidOperation(_while_checking(text))
    total, most = int(target_lengths.sum()), int(target_lengths.max())
    if targets.ndim == 1 and targets.shape[0] != total:
        raise _wrong_size(0, str(total), targets)
    if targets.ndim == 2 and targets.shape[1] < most:
        raise _wrong_size(1, f"at least {most}", targets)


# The lattice ---------------------------------------------------------------------------------------------


def _labels(xp: Any, targets: Any, target_lengths: Any, blank: int, classes: int) -> tuple[Any, Any]:
    """Each target's labels with blanks around them, (N, 2 S + 1), and whether each may follow the one before last."""
    most = int(target_lengths.max())
    places = xp.arange(most)
    if targets.ndim == 1:
        starts = xp.cumsum(target_lengths, axis=0) - target_lengths
        spots = xp.minimum(starts[:, None] + places, max(targets.shape[0] - 1, 0))
        rows = targets[spots] if targets.shape[0] else xp.zeros((target_lengths.shape[0], 0), int64.numpy)
    else:
        rows = targets[:, :most]
    rows = xp.where(places < target_lengths[:, None], rows.astype(int64.numpy), blank)
    if rows.size and not 0 <= int(rows.min()) <= int(rows.max()) < classes:
        wrong = int(rows.max()) if int(rows.max()) >= classes else int(rows.min())
        raise InvalidOperation(f"ctc_loss: target {wrong} is out of range for {classes} classes")
    pairs = xp.stack([xp.full(rows.shape, blank, int64.numpy), rows], axis=2)
    labels = xp.pad(xp.reshape(pairs, (rows.shape[0], 2 * most)), [(0, 0), (0, 1)], constant_values=blank)
    earlier = xp.pad(labels, [(0, 0), (2, 0)], constant_values=blank)[:, : labels.shape[1]]
    return labels, xp.logical_and(labels != blank, labels != earlier)


def _shifted(xp: Any, logs: Any, by: int) -> Any:
    return xp.pad(logs, [(0, 0), (by, 0)], constant_values=-math.inf)[:, : logs.shape[1]]


def _forward(xp: Any, emitted: Any, skips: Any) -> Any:
    """alpha (T, N, L): the log-probability of emitting the target up to and including each label, by step."""
    first = xp.arange(emitted.shape[2]) < 2
    steps = [xp.where(first, emitted[0], -math.inf)]
    for now in emitted[1:]:
        check_cancelled()
        before = steps[-1]
        stay = xp.logaddexp(before, _shifted(xp, before, 1))
        steps.append(now + xp.logaddexp(stay, xp.where(skips, _shifted(xp, before, 2), -math.inf)))
    return xp.stack(steps)


def _ends(xp: Any, target_lengths: Any, width: int) -> Any:
    """Whether each target may end at each label, (N, L): at its last label or at the blank after it."""
    places, last = xp.arange(width), 2 * target_lengths[:, None]
    return xp.logical_and(places <= last, places >= last - 1)


def _lattice(xp: Any, log_probs: Any, labels: Any) -> Any:
    steps, batch, _ = log_probs.shape
    spread = xp.broadcast_to(labels, (steps, batch, labels.shape[1]))
    return xp.take_along_axis(log_probs, spread, axis=2)


def _total(xp: Any, logs: Any, axis: int) -> Any:
    """The log-sum-exp along ``axis``; -inf if all elements are -inf."""
    most = xp.max(logs, axis=axis, keepdims=True)
    safe = xp.where(xp.isinf(most), 0.0, most)
    return xp.squeeze(xp.log(xp.sum(xp.exp(logs - safe), axis=axis, keepdims=True)) + safe, axis=axis)


def _scratch(log_probs: Any, targets: Any, *_lengths: Any) -> int:
    """The scratch bytes of alpha, its steps and their inputs, for the longest possible target."""
    lattice = math.prod(log_probs.shape[:2]) * (2 * targets.shape[-1] + 1)
    return int(48 * lattice + 4 * log_probs.nbytes)


@op(
    _loss_rule,
    variants=INTERNAL,
    node="CtcLossBackward0",
    memory=scratch(_scratch),
    may_raise=True,
    batching=nn_rules.ctc_losses,
)
def ctc_losses(
    xp: Any,
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    blank: Int,
    zero_infinity: Bool,
) -> Any:
    """Minus the log-probability of each target, over all its alignments."""
    _check_lengths(log_probs, targets, input_lengths, target_lengths)
    labels, skips = _labels(xp, targets, target_lengths, blank, log_probs.shape[2])
    alpha = _forward(xp, _lattice(xp, log_probs, labels), skips)
    last = xp.maximum(input_lengths - 1, 0)
    final = alpha[last, xp.arange(alpha.shape[1])]
    final = xp.where(_ends(xp, target_lengths, labels.shape[1]), final, -math.inf)
    # Without input, the empty target has probability 1, and every other target 0.
    empty = xp.where(target_lengths == 0, 0.0, -math.inf).astype(log_probs.dtype)
    losses = -xp.where(input_lengths == 0, empty, _total(xp, final, 1))
    return xp.where(xp.isinf(losses), 0.0, losses) if zero_infinity else losses


@op(
    lambda grad, log_probs, *_: Spec(log_probs.shape, log_probs.dtype),
    variants=PRIVATE,
    memory=scratch(lambda grad, *inputs: 2 * _scratch(*inputs)),
)
def ctc_losses_backward(
    xp: Any,
    grad: Array,
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    blank: Int,
    zero_infinity: Bool,
) -> Any:
    """The gradient as torch has it, where ``log_probs`` are taken to be a log-softmax: it sums to 0 over classes.

    Graves et al. 2006, equation 16.
    """
    steps, _, classes = log_probs.shape
    labels, skips = _labels(xp, targets, target_lengths, blank, classes)
    emitted = _lattice(xp, log_probs, labels)
    alpha = _forward(xp, emitted, skips)
    ends = _ends(xp, target_lengths, labels.shape[1])
    later = xp.pad(skips, [(0, 0), (0, 2)])[:, 2:]
    beta = xp.full(labels.shape, -math.inf, log_probs.dtype)
    joint = []
    for t in reversed(range(steps)):
        one, two = (xp.pad(beta, [(0, 0), (0, by)], constant_values=-math.inf)[:, by:] for by in (1, 2))
        moved = xp.logaddexp(xp.logaddexp(beta, one), xp.where(later, two, -math.inf))
        ending = xp.where(ends, 0.0, -math.inf)
        beta = emitted[t] + xp.where((t == input_lengths - 1)[:, None], ending, moved)
        joint.append(alpha[t] + beta - emitted[t])
    along = xp.stack(joint[::-1])
    total = _total(xp, along[0] if steps else along, 1)
    inside = xp.arange(steps)[:, None] < input_lengths
    shares = xp.where(inside[..., None], xp.exp(along - total[:, None]), 0.0)
    hot = (labels[:, :, None] == xp.arange(classes)).astype(log_probs.dtype)
    occupancy = xp.einsum("tnl,nlc->tnc", shares, hot)
    result = xp.where(inside[..., None], (xp.exp(log_probs) - occupancy) * grad[:, None], 0.0)
    if zero_infinity:
        result = xp.where(xp.isinf(total)[:, None], 0.0, result)
    return result.astype(log_probs.dtype)


def _no_second_derivative(F: Any, grad: Any) -> Any:
    raise InvalidOperation("derivative for aten::_ctc_loss_backward is not implemented")


ctc_losses_backward.derivative(grad=_no_second_derivative, log_probs=_no_second_derivative)
ctc_losses.derivative(
    log_probs=lambda F, grad, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity: (
        F.ctc_losses_backward(grad, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    )
)


@composite(variants=NN_FUNCTION, autocast=FLOAT32_ON_CPU)
def ctc_loss(
    F: Any,
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    blank: Int = 0,
    reduction: Reduction = "mean",
    zero_infinity: Bool = False,
) -> Any:
    """Minus the log-probability of targets (N, S), given the log-probabilities (T, N, C) of labels at each step.

    Targets may also be concatenated in a vector. With "mean", each loss is first divided by its target's length.
    ``log_probs`` may be (T, C) for a single sequence.
    """
    check_reduction(reduction)
    single = len(log_probs.shape) == 2
    if single:
        log_probs = F.unsqueeze(log_probs, 1)
        input_lengths, target_lengths = F.reshape(input_lengths, (1,)), F.reshape(target_lengths, (1,))
    losses = F.ctc_losses(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    if reduction == "mean":
        losses = losses / F.to(F.clamp(target_lengths, min=1), dtype=losses.dtype)
    return F.squeeze(losses, 0) if single and reduction == "none" else reduce_loss(F, losses, reduction)


@composite(key="ctc_loss.lengths", variants=NN_FUNCTION)
def ctc_loss_lengths(
    F: Any,
    log_probs: Array,
    targets: Array,
    input_lengths: Ints,
    target_lengths: Ints,
    blank: Int = 0,
    reduction: Reduction = "mean",
    zero_infinity: Bool = False,
) -> Any:
    """The same with lengths that are numbers."""
    lengths = [F.as_lengths(numbers) for numbers in (input_lengths, target_lengths)]
    return F.ctc_loss(log_probs, targets, *lengths, blank, reduction, zero_infinity)


@op(lambda lengths: Spec((len(lengths),), int64.numpy), variants=INTERNAL)
def as_lengths(xp: Any, lengths: Ints) -> Any:
    """Lengths as an int64 tensor."""
    return xp.asarray(lengths, dtype=int64.numpy)
