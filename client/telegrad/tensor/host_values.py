"""A tensor's values in this process: as arrays, as Python numbers, and changed by a Python function."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Self

import ml_dtypes
import numpy as np

from telegrad_engine.errors import InvalidOperation
from telegrad_engine.tensor.eager import item, one_number, truth


async def in_worker_thread(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a function in a worker thread, so that the event loop keeps running."""
    from asyncio import to_thread  # takes a tenth of the time to import Telegrad, and most programs have no event loop

    return await to_thread(function, *args, **options)


def host_array(tensor: Any) -> Any:
    """Return the values of a tensor, ours or another library's, as a NumPy array, with bfloat16 from ml_dtypes."""
    host = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16" and not hasattr(tensor, "_recorder"):
        # Converted by its bits: the int16 dtype must be the other library's, so it is taken from a tensor.
        bits = host.view(host.new_empty(0).short().dtype)
        return bits.numpy().view(ml_dtypes.bfloat16)
    return host.numpy()


class HostValues:
    """Methods that return values to Python. Only tensors of sessions have them."""

    _id: str
    _recorder: Any

    def numpy(self: Any, *, force: bool = False) -> Any:
        """Return the value as a new NumPy array. Raises for tensors that require grad, unless ``force``.

        It waits for the session.

        Examples:
            >>> tg.tensor([1.0, 2.0]).numpy()
            array([1., 2.], dtype=float32)
        """
        if self.requires_grad and not force:
            raise InvalidOperation(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
            )
        array = self._fetch()
        # A local session returns its own array, which is copied; a server's array belongs to this call alone.
        return array if self._recorder.transport.remote and array.flags.writeable else np.array(array)

    async def value(self: Any) -> Any:
        """Return the value as a new NumPy array, without blocking the event loop.

        Examples:
            >>> import asyncio
            >>> asyncio.run(tg.tensor([1.0, 2.0]).value())
            array([1., 2.], dtype=float32)
        """
        return (await in_worker_thread(self._recorder.fetch, [self._id]))[self._id].array.copy()

    def tolist(self: Any) -> Any:
        """Return the value as nested lists of Python numbers.

        It waits for the session. A 0-dim tensor gives a number.

        Examples:
            >>> tg.tensor([[1, 2], [3, 4]]).tolist()
            [[1, 2], [3, 4]]
        """
        return self._fetch().tolist()

    def item(self: Any) -> Any:
        """Return the value of a one-element tensor as a Python number.

        Raises RuntimeError for a tensor of another number of elements. It waits for the session.

        Examples:
            >>> tg.tensor([2.5]).item()
            2.5
        """
        return item(self._one())

    def _one(self: Any) -> Any:
        """The value of a one-element tensor; otherwise its spec, which errors describe."""
        return self._fetch() if prod(self._data.shape) == 1 else self._data

    def __bool__(self: Any) -> bool:
        return truth(self._one())

    def __float__(self: Any) -> float:
        return float(self._one_number())

    def __int__(self: Any) -> int:
        return int(self._one_number())

    def __complex__(self: Any) -> complex:
        return complex(self._one_number())

    def _one_number(self: Any) -> Any:
        return one_number(self._one())

    def __index__(self: Any) -> int:
        if self.numel() != 1 or self.dtype.is_floating_point:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.numpy(), dtype=dtype)

    def __dlpack__(self: Any, **options: Any) -> Any:
        """Return a DLPack capsule with a copy of the value."""
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self: Any) -> tuple[int, int]:
        return (1, 0)  # the CPU, where the copy is

    # A Python function of each element: all raise TypeError for a tensor that requires grad.

    def apply_(self, callable: Callable[[Any], Any]) -> Self:
        """Replace each element by ``callable(element)``.

        ``callable`` takes and returns a number. The values are fetched and sent back; it works only outside a graph.

        Examples:
            >>> tg.tensor([1.0, 2.0]).apply_(lambda x: x + 0.5)
            tensor([1.5000, 2.5000])
        """
        return self._map(callable)

    def map_(self, tensor: Any, callable: Callable[[Any, Any], Any]) -> Self:
        """Replace each element by ``callable(element, other)``, with the element of ``tensor`` at the same index.

        ``callable`` takes two numbers and returns one. The values are fetched and sent back.

        Examples:
            >>> tg.tensor([1.0, 2.0]).map_(tg.ones(2), lambda a, b: a - b)
            tensor([0., 1.])
        """
        return self._map(callable, tensor)

    def map2_(self, x: Any, y: Any, callable: Callable[[Any, Any, Any], Any]) -> Self:
        """Replace each element by a function of it and of the elements of ``x`` and ``y`` at the same index.

        ``callable`` takes three numbers and returns one. The values are fetched and sent back.

        Examples:
            >>> tg.tensor([1.0, 2.0]).map2_(tg.ones(2), tg.ones(2), lambda a, b, c: a + b + c)
            tensor([3., 4.])
        """
        return self._map(callable, x, y)

    def _map(self, function: Callable[..., Any], *others: Any) -> Self:
        tensor: Any = self
        if tensor.requires_grad:
            raise TypeError("Can't call apply_() on Variable that requires grad. Use var.detach().apply_() instead.")
        arrays = [np.broadcast_to(t._fetch(), tuple(tensor.shape)) for t in (tensor, *others)]
        rows = zip(*[a.reshape(-1).tolist() for a in arrays], strict=True)
        values = np.array([function(*row) for row in rows], arrays[0].dtype).reshape(arrays[0].shape)
        tensor.copy_(tensor.new_tensor(values))
        return self
