"""Collates samples: arrays are stacked on the client and uploaded once, tensors are stacked in the session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from telegrad_engine.errors import InvalidArgument, InvalidOperation

from ...sessions.session import current
from ...tensor.handle import Tensor, functions, upload

TEXT = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def default_collate(batch: Sequence[Any]) -> Any:
    """Collate samples to a batch with a new first dimension.

    Tensors, arrays and numbers become one tensor (Python floats a float64 one); dicts, tuples and lists are
    collated field by field, strings stay a list. Raises TypeError for anything else.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return functions.stack(list(batch))
    if hasattr(first, "detach") and hasattr(first, "numpy"):
        return default_collate([sample.detach().cpu().numpy() for sample in batch])
    if isinstance(first, (np.ndarray, np.generic)):
        return _stack(batch)
    if isinstance(first, float):
        return upload(current().recorder, list(batch), "float64")
    if isinstance(first, int):
        return upload(current().recorder, list(batch))
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        collated = {key: default_collate([sample[key] for sample in batch]) for key in first}
        return collated if type(first) is dict else _like(first, collated)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*[default_collate(field) for field in zip(*batch, strict=True)])
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise InvalidOperation("each element in list of batch should be of equal size")
        fields = [default_collate(field) for field in zip(*batch, strict=True)]
        return fields if isinstance(first, tuple) else _like(first, fields)
    raise InvalidArgument(TEXT.format(type(first)))


def default_convert(data: Any) -> Any:
    """Convert the arrays in a sample to tensors; a loader without batches uses this."""
    if isinstance(data, (np.ndarray, np.generic)) and data.dtype.kind not in "SUO":
        return upload(current().recorder, data)
    if isinstance(data, Mapping):
        return _like(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*[default_convert(value) for value in data])
    if isinstance(data, tuple):
        return [default_convert(value) for value in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _like(data, [default_convert(value) for value in data])
    return data


def _stack(batch: Sequence[Any]) -> Tensor:
    arrays = [np.asarray(sample) for sample in batch]
    if arrays[0].dtype.kind in "SUO":
        raise InvalidArgument(TEXT.format(arrays[0].dtype))
    if any(array.shape != arrays[0].shape for array in arrays):
        entry = next(i for i, array in enumerate(arrays) if array.shape != arrays[0].shape)
        raise InvalidOperation(
            f"stack expects each tensor to be equal size, but got {list(arrays[0].shape)} at entry 0 and "
            f"{list(arrays[entry].shape)} at entry {entry}"
        )
    return upload(current().recorder, np.stack(arrays))


def _like(original: Any, values: Any) -> Any:
    """``values`` in the original's container class, if that class accepts them."""
    try:
        return type(original)(values)
    except TypeError:
        return values
