"""Writing through views: what a base's history is after a view of it was changed in place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..errors import InvalidArgument
from ..schema.op import CATALOGUE, Op, op
from ..schema.parameters import Array, Items
from ..shapes import Spec, check_keeps_shape


def _steps(chain: Any) -> Iterator[tuple[Op, Any, int]]:
    """The steps of a chain of views, for an array of any layout: where a view had no need of a copy, it may."""
    for step, attrs, index in chain:
        yield CATALOGUE.get("reshape") if step.key == "view" else step, attrs, index


def _part(result: Any, index: int) -> Any:
    return result[index] if isinstance(result, (list, tuple)) else result


def _follow(F: Any, x: Any, chain: Any) -> Any:
    """The part of ``x`` that a chain of view ops leads to."""
    for step, attrs, index in _steps(chain):
        x = _part(getattr(F, step.key.replace(".", "_"))(x, **attrs), index)
    return x


def _view_scatter_rule(input: Any, src: Any, chain: Any) -> Spec:
    if not all(isinstance(link, tuple) and len(link) == 3 and isinstance(link[0], Op) for link in chain):
        raise InvalidArgument("view_scatter(): argument 'chain' must be a chain of views")
    part = Spec(input.shape, input.dtype)
    for step, attrs, index in _steps(chain):
        part = _part(step.rule(part, **attrs), index)
    check_keeps_shape(part.shape, src.shape)
    return Spec(input.shape, input.dtype)


@op(_view_scatter_rule, method=False, private=True, scratch=2.0)
def view_scatter(xp: Any, input: Array, src: Array, chain: Items) -> Any:
    """``input`` with the part that ``chain`` of views leads to replaced by ``src``."""
    size = math.prod(input.shape)
    # What a base that became a part of itself (as_strided_) no longer shows is written to a spare place, 0.
    spare = int(any(step.key == "unstrided" for step, _, _ in chain))
    places = xp.arange(spare, size + spare).reshape(input.shape)
    for step, attrs, index in _steps(chain):
        places = _part(step.kernel(xp, places, **attrs), index)
    flat = xp.reshape(input, (-1,))
    if spare:
        flat = xp.concatenate([xp.zeros((1,), input.dtype), flat])
    return xp.reshape(xp.index_set(flat, places, src)[spare:], input.shape)


view_scatter.derivative(
    input=lambda F, grad, src_shape, chain: F.view_scatter(grad, F.new_zeros(grad, src_shape), chain),
    src=lambda F, grad, chain: _follow(F, grad, chain),
)
