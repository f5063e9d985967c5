"""``torch.nn.utils.rnn``: sequences of different lengths in one tensor, padded or packed.

Lengths are fetched only if they are tensors. The client computes the batch sizes and indices from them and uploads
these, so packing and unpacking fetch nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from telegrad_engine.errors import InvalidArgument, InvalidOperation, InvalidValue

from ...sessions.session import current
from ...tensor.handle import Tensor, functions, upload


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


def _converting(dtype: str) -> Callable[[PackedSequence], PackedSequence]:
    def method(self: PackedSequence) -> PackedSequence:
        return self.to(dtype=dtype)

    method.__doc__ = f"Return a copy with its rows in {dtype}."
    return method


class PackedSequence(_Fields):
    """The first steps of all sequences, then the second steps of those that have one, and so on.

    ``data`` holds the rows and ``batch_sizes`` the number of sequences at each step. ``sorted_indices`` is the order
    in which the sequences were sorted, the longest first, and ``unsorted_indices`` its inverse. Created by
    ``pack_sequence`` and ``pack_padded_sequence``.

    Examples:
        >>> packed = tg.nn.utils.rnn.pack_sequence([tg.ones(3, 1), tg.ones(2, 1)])
        >>> packed.data.shape, packed.batch_sizes
        (telegrad.Size([5, 1]), tensor([2, 2, 1]))
    """

    _sizes: tuple[int, ...] | None = None

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> Self:
        """Create a sequence. Raises ValueError without ``batch_sizes``."""
        if batch_sizes is None:
            raise InvalidValue("batch_sizes should be a tensor: how many sequences have each step")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with_data(self, data: Tensor) -> Self:
        """Return a copy with ``data`` as its rows."""
        made = type(self)(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)
        made._sizes = self._sizes
        return made

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Return a copy with its rows converted as by ``Tensor.to``, or the sequence itself if nothing changes."""
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else self._with_data(data)

    double, float, half = _converting("float64"), _converting("float32"), _converting("float16")
    long, int, short = _converting("int64"), _converting("int32"), _converting("int16")
    char, byte = _converting("int8"), _converting("uint8")

    def cpu(self) -> Self:
        """Return the sequence itself: values are fetched on demand."""
        return self

    def cuda(self, device: Any = None) -> Self:
        """Return the sequence itself. Raises AssertionError unless the session computes on a GPU."""
        self.data.cuda(device)
        return self

    def pin_memory(self) -> Self:
        """Return the sequence itself. Raises RuntimeError unless the session computes on a GPU."""
        self.data.pin_memory()
        return self

    def is_pinned(self) -> bool:
        """False: the rows are in the session's memory."""
        return self.data.is_pinned()

    @property
    def is_cuda(self) -> bool:
        """Whether the session computes on a GPU."""
        return self.data.is_cuda


def known_sizes(sequence: PackedSequence) -> tuple[int, ...]:
    """Return the batch sizes as integers, fetched once if the client does not know them."""
    if sequence._sizes is None:
        sequence._sizes = tuple(sequence.batch_sizes.tolist())
    return sequence._sizes


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Return the inverse of a permutation, or None for None.

    Examples:
        >>> tg.nn.utils.rnn.invert_permutation(tg.tensor([2, 0, 1]))
        tensor([1, 2, 0])
    """
    if permutation is None:
        return None
    return functions.argsort(permutation)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack sequences (T, N, *), or (N, T, *) with ``batch_first``, of the given ``lengths``.

    With ``enforce_sorted``, they must be in order of decreasing length; otherwise they are sorted here. Raises
    RuntimeError for lengths that are not sorted or do not fit ``input``.

    Examples:
        >>> packed = tg.nn.utils.rnn.pack_padded_sequence(tg.ones(3, 2, 4), [3, 2])
        >>> packed.data.shape
        telegrad.Size([5, 4])
    """
    found = _numbers(lengths)
    order = None
    if not enforce_sorted:
        order = np.argsort(-found, kind="stable")
        found = found[order]
    sorted_indices = None if order is None else _sent(order)
    if batch_first:
        input = input.transpose(0, 1)
    _check_lengths(found, input, enforce_sorted)
    if sorted_indices is not None:
        input = input.index_select(1, sorted_indices)
    sizes = tuple(int((found > step).sum()) for step in range(int(found.max(initial=0))))
    rows = input[: len(sizes)].reshape(-1, *input.shape[2:]).index_select(0, _sent(_places(sizes)))
    packed = PackedSequence(rows, _sent(sizes), sorted_indices, None if order is None else _sent(np.argsort(order)))
    packed._sizes = sizes
    return packed


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the sequences of ``sequence``, (T, N, *) or (N, T, *) with ``batch_first``, and their lengths.

    Shorter sequences are padded with ``padding_value``. T is the longest length, or ``total_length``; raises ValueError
    if that is less.

    Examples:
        >>> packed = tg.nn.utils.rnn.pack_sequence([tg.ones(3), tg.ones(2)])
        >>> tg.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        (tensor([[1., 1., 1.],
                [1., 1., 0.]]), tensor([3, 2]))
    """
    sizes = known_sizes(sequence)
    steps = len(sizes) if total_length is None else total_length
    if steps < len(sizes):
        raise InvalidValue(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {len(sizes)}"
        )
    data, batch = sequence.data, sizes[0]
    padded = functions.full((steps * batch, *data.shape[1:]), padding_value, dtype=data.dtype)
    padded = padded.index_copy(0, _sent(_places(sizes)), data).reshape(steps, batch, *data.shape[1:])
    lengths: Tensor = _sent([sum(size > n for size in sizes) for n in range(batch)])
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices]
    return padded.transpose(0, 1) if batch_first else padded, lengths


def pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Stack sequences (L, *) into (T, N, *), or (N, T, *) with ``batch_first``, padded with ``padding_value``.

    Raises ValueError or RuntimeError unless ``sequences`` are tensors that differ only in length.

    ``padding_side`` is "right" or "left".

    Examples:
        >>> tg.nn.utils.rnn.pad_sequence([tg.tensor([1, 2, 3]), tg.tensor([4])], batch_first=True)
        tensor([[1, 2, 3],
                [4, 0, 0]])
    """
    if isinstance(sequences, Tensor):
        sequences = sequences.unbind(0)
    elif not isinstance(sequences, (list, tuple)):
        raise InvalidOperation(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: " + str(type(sequences))
        )
    if padding_side not in ("left", "right"):
        raise InvalidOperation(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    if not sequences:
        raise InvalidOperation("received an empty list of sequences")
    longest = max(s.shape[0] for s in sequences)
    padded: Tensor = functions.stack([_filled(s, longest, padding_value, padding_side) for s in sequences])
    return padded if batch_first else padded.transpose(0, 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """Return the sequences of ``padded_sequences``, which ``pad_sequence`` padded, cut to their ``lengths``.

    The sequences are (T, N, *), or (N, T, *) with ``batch_first``.

    Examples:
        >>> tg.nn.utils.rnn.unpad_sequence(tg.tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)
        [tensor([1, 2]), tensor([3])]
    """
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    numbers = _numbers(lengths).tolist()
    return [sequence[:n] for sequence, n in zip(padded_sequences.unbind(0), numbers, strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences (L, *): ``pad_sequence``, then ``pack_padded_sequence``.

    ``enforce_sorted`` is that of ``pack_padded_sequence``.

    Examples:
        >>> tg.nn.utils.rnn.pack_sequence([tg.ones(3, 1), tg.ones(2, 1)]).batch_sizes
        tensor([2, 2, 1])
    """
    lengths = [int(sequence.shape[0]) for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Return the sequences that were packed in ``packed_sequences``.

    Examples:
        >>> packed = tg.nn.utils.rnn.pack_sequence([tg.tensor([1, 2]), tg.tensor([3])])
        >>> tg.nn.utils.rnn.unpack_sequence(packed)
        [tensor([1, 2]), tensor([3])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def _filled(sequence: Tensor, length: int, value: float, side: str) -> Tensor:
    missing = length - int(sequence.shape[0])
    if not missing:
        return sequence
    filling = functions.full((missing, *sequence.shape[1:]), value, dtype=sequence.dtype)
    return functions.cat([sequence, filling] if side == "right" else [filling, sequence])


def _numbers(lengths: Any) -> Any:
    """Return the lengths as an array of integers. Raises TypeError for anything else."""
    values = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    found = np.asarray(values)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise InvalidArgument(f"lengths must be a list or a tensor of integers, not {values!r:.60}")
    return found.astype(np.int64)


def _check_lengths(lengths: Any, input: Tensor, enforce_sorted: bool) -> None:
    if enforce_sorted and (np.diff(lengths) > 0).any():
        raise InvalidOperation(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you "
            "do not need ONNX exportability."
        )
    batch = input.shape[1]
    if len(lengths) != batch:
        raise InvalidOperation(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} (batch_size={batch})"
        )
    if (lengths <= 0).any():
        raise InvalidOperation(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if lengths.max() > input.shape[0]:
        raise InvalidOperation(f"Expected lengths of at most {input.shape[0]}, but got {int(lengths.max())}")


def _places(sizes: Sequence[int]) -> Any:
    """Return the indices of the packed rows in the flattened padded tensor of ``sizes[0]`` sequences."""
    return np.concatenate([step * sizes[0] + np.arange(size) for step, size in enumerate(sizes)])


def _sent(numbers: Any) -> Tensor:
    return upload(current().recorder, np.asarray(numbers, dtype=np.int64))
