"""Batching rules for ops on sequences: recurrent layers, CTC losses and embedding bags."""

from __future__ import annotations

from typing import Any

from .batched_call import BatchedCall, Lanes, shape_of
from .convolution import folded, unfolded
from .families import rule


@rule("rnn_layer", "gru_layer", "lstm_layer")
def recurrent_layer(call: BatchedCall) -> Any:
    """Merge the batch into the batch of sequences; NotImplemented if the weights differ between samples."""
    count = 3 if call.op.key == "lstm_layer" else 2
    sequences, parameters = call.inputs[:count], call.inputs[count:]
    if any(isinstance(p, Lanes) for p in parameters):
        return NotImplemented
    F, size = call.F, call.size

    def beside(value: Any) -> Any:
        batch = len(shape_of(value)) - 2
        moved = F.movedim(call.lifted(value), 0, batch)
        return F.flatten(moved, batch, batch + 1)

    def apart(result: Any, shape: tuple[int, ...]) -> Any:
        batch = len(shape) - 2
        return F.movedim(F.reshape(result, (*shape[:batch], size, *shape[batch:])), batch, 0)

    results = call.apply(*map(beside, sequences), *parameters, **call.attrs)
    results = results if isinstance(results, (list, tuple)) else [results]
    return [apart(result, spec.shape) for result, spec in zip(results, call.specs, strict=True)]


@rule("ctc_losses")
def ctc_losses(call: BatchedCall) -> Any:
    """Merge the batch into the batch of sequences; targets in one vector are concatenated."""
    F, (log_probs, targets, *lengths) = call.F, call.inputs
    steps, batch, classes = shape_of(log_probs)
    beside = F.reshape(F.movedim(call.lifted(log_probs), 0, 1), (steps, call.size * batch, classes))
    losses = call.apply(beside, folded(call, targets), *[folded(call, x) for x in lengths], **call.attrs)
    return unfolded(call, losses)


@rule("bag_places")
def bag_places(call: BatchedCall) -> Any:
    """Apply the op to the whole batch of numbers; NotImplemented if the offsets differ between samples."""
    numbers, offsets = call.inputs
    return NotImplemented if isinstance(offsets, Lanes) else call.apply(call.lifted(numbers), offsets, **call.attrs)
