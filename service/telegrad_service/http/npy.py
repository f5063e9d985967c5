"""NumPy's ``.npy`` format, read strictly: objects, archives and wrong sizes are refused.

Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from telegrad_engine import dtypes
from telegrad_engine.errors import DTypeMismatch, MalformedRequest, NotAcceptable
from telegrad_engine.program.compression import Body

_READERS: dict[tuple[int, int], Any] = {
    (1, 0): npy_format.read_array_header_1_0,
    (2, 0): npy_format.read_array_header_2_0,
}


def decode(body: Body) -> Any:
    """Decode the array in a body. Raises MalformedRequest, or DTypeMismatch if tensors do not support its dtype."""
    stream = io.BytesIO(body)
    try:
        reader = _READERS[npy_format.read_magic(stream)]
        shape, fortran, dtype = reader(stream)
    except Exception as error:  # the header is a Python literal, and parsing it can raise many errors
        raise MalformedRequest(f"npy: the header cannot be read: {error!s:.120}") from None
    if dtype.hasobject:
        raise DTypeMismatch("npy: arrays of objects are not read")
    dtypes.from_numpy(dtype.newbyteorder("="))
    start = stream.tell()
    count = math.prod(shape)
    if count * dtype.itemsize != len(body) - start or min(shape, default=0) < 0:
        raise MalformedRequest(f"npy: {len(body) - start} bytes do not hold shape {list(shape)} of {dtype}")
    flat = np.frombuffer(body, dtype, count, start) if count else np.empty(0, dtype)
    array = flat.reshape(shape, order="F" if fortran else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)


def encode(array: Any) -> bytes:
    """Encode an array as a ``.npy`` file."""
    if array.dtype.kind == "V":
        raise NotAcceptable("npy has no bfloat16; ask for application/vnd.safetensors or application/json")
    stream = io.BytesIO()
    npy_format.write_array(stream, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
    return stream.getvalue()
