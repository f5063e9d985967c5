"""Samples of arrays, and statistics of samples, so that a large array takes no longer than a small one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..context import state
from ..dtypes import from_numpy
from ..program.json_codec import to_lists
from ..schema.parameters import encode_number

MAX_SAMPLE = 10**6
"""The number of elements of a sample for somebody who looks at one tensor."""
PREVIEW = 64
"""The number of first elements that a preview shows."""
BINS = 32


class Sample(NamedTuple):
    """Elements of an array, at equal distances, in memory of their own."""

    shape: tuple[int, ...]
    dtype: str
    values: Any
    """A NumPy array of one dimension; all elements if these are few."""
    first: Any
    """The first elements, in row-major order."""

    @property
    def size(self) -> int:
        """The number of elements of the array."""
        return math.prod(self.shape)

    @property
    def is_partial(self) -> bool:
        """Whether the array has more elements than the sample."""
        return int(self.values.size) < self.size

    @property
    def nbytes(self) -> int:
        """The bytes that the sample takes."""
        return int(self.values.nbytes + self.first.nbytes)

    def norm(self) -> float:
        """The Euclidean norm of the array, estimated if the sample is partial; NaN or infinite if an element is."""
        values = _wide(self.values)
        largest = float(np.abs(values).max(initial=0.0))
        if not math.isfinite(largest) or largest == 0.0:
            return largest
        scaled = values / largest  # so that no square overflows
        return largest * math.sqrt(float(np.dot(scaled, scaled)) * self.size / values.size)


def sample_of(array: Any, most: int) -> Sample:
    """Sample at most ``most`` elements of an array of any library. They are copied."""
    size = math.prod(array.shape)
    dtype = from_numpy(array.dtype).name
    if size <= most:
        values = _copied(array.reshape(-1))
        return Sample(array.shape, dtype, values, values[:PREVIEW])
    step = -(-size // most)
    while math.gcd(step, array.shape[-1]) > 1:  # not always the same columns
        step += 1
    if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
        return Sample(array.shape, dtype, array.flat[::step], array.flat[:PREVIEW])
    flat = array.reshape(-1)
    return Sample(array.shape, dtype, _copied(flat[::step]), _copied(flat[:PREVIEW]))


def number_of(array: Any) -> float:
    """The number in an array of one element, of any library."""
    return float(_wide(sample_of(array, 1).values)[0])


def _copied(array: Any) -> Any:
    """A copy of an array in the host's memory."""
    return np.array(array if state.device is None else state.device.backend.download(array))


def _wide(values: Any) -> Any:
    """The values as float64."""
    return values.astype(np.float64)


class Summary(NamedTuple):
    """The norm and the extremes of some elements, and how many are not finite."""

    norm: float
    """The Euclidean norm of all elements."""
    min: float | None
    """The smallest finite element; None if there is none."""
    max: float | None
    nan: int
    inf: int

    def data(self) -> dict[str, Any]:
        """The summary as JSON data."""
        return {**self._asdict(), "norm": encode_number(self.norm)}


def summary_of(sample: Sample) -> Summary:
    """The summary of a sample. The counts are those in the sample."""
    with np.errstate(all="ignore"):
        values = _wide(sample.values)
        finite = values[np.isfinite(values)]
        nan = int(np.isnan(values).sum())
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
        return Summary(sample.norm(), low, high, nan, int(values.size - finite.size) - nan)


def merged(summaries: Sequence[Summary]) -> Summary:
    """The summary of several arrays together."""
    lows = [each.min for each in summaries if each.min is not None]
    highs = [each.max for each in summaries if each.max is not None]
    norm = math.hypot(*[each.norm for each in summaries])
    nan, inf = sum(each.nan for each in summaries), sum(each.inf for each in summaries)
    return Summary(norm if not nan else math.nan, min(lows, default=None), max(highs, default=None), nan, inf)


def statistics_of(sample: Sample) -> dict[str, Any]:
    """The statistics of a sample as JSON data.

    ``min``, ``max``, ``mean`` and the histogram are those of the finite elements, null if there are none; ``nan`` and
    ``inf`` count the others in the sample. ``norm`` is that of all elements.
    """
    with np.errstate(all="ignore"):
        values = _wide(sample.values)
        finite = values[np.isfinite(values)]
        whole = sample.first.reshape(sample.shape) if sample.size <= PREVIEW else sample.first
        return {
            "shape": list(sample.shape),
            "dtype": sample.dtype,
            "size": sample.size,
            **summary_of(sample).data(),
            "mean": _mean(finite),
            "preview": to_lists(whole),
            "histogram": _histogram(finite),
            "sampled": sample.is_partial,
        }


def _mean(finite: Any) -> float | None:
    if not finite.size:
        return None
    mean = float(finite.mean())
    return mean if math.isfinite(mean) else float((finite / finite.size).sum())


def _histogram(finite: Any) -> dict[str, Any] | None:
    """The histogram of finite values; None if there are none, or if their range has no 32 intervals in float64."""
    if not finite.size or not math.isfinite(float(finite.max()) - float(finite.min())):
        return None
    try:
        counts, edges = np.histogram(finite, BINS)
    except ValueError:  # the range is too narrow
        return None
    return {"edges": edges.tolist(), "counts": counts.tolist()}
