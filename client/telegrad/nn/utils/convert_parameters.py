"""Conversion between parameters and one vector of all their elements."""

from __future__ import annotations

from collections.abc import Iterable

from ...tensor.handle import Tensor, functions
from ..parameter import type_name


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Concatenate the parameters' elements into one vector, differentiably.

    Examples:
        >>> tg.nn.utils.parameters_to_vector([tg.tensor([[1.0, 2.0]]), tg.tensor([3.0])])
        tensor([1., 2., 3.])
    """
    return functions.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make the parameters share the memory of consecutive slices of ``vec``. Raises TypeError unless it is a tensor.

    Examples:
        >>> w = tg.zeros(2, 2)
        >>> tg.nn.utils.vector_to_parameters(tg.tensor([1.0, 2.0, 3.0, 4.0]), [w])
        >>> w
        tensor([[1., 2.],
                [3., 4.]])
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type_name(vec)}")
    place = 0
    for parameter in parameters:
        end = place + parameter.numel()
        parameter.data = vec[place:end].reshape(tuple(parameter.shape)).data
        place = end
