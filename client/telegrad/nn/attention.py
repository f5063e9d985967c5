"""``torch.nn.attention``: the choice of attention kernel, which has no effect because the session has one kernel."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager

from telegrad_engine.errors import InvalidChoice

from ..exclusions import attribute_of

__all__ = ["SDPBackend", "sdpa_kernel"]


__getattr__ = attribute_of("nn.attention")


class SDPBackend(enum.IntEnum):
    """torch's kernels of ``scaled_dot_product_attention``.

    Examples:
        >>> tg.nn.attention.SDPBackend.MATH.name
        'MATH'
    """

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[None]:
    """Do nothing. Raises AssertionError unless ``backends`` is an ``SDPBackend`` or a list of them.

    Attention has one kernel. ``set_priority`` changes nothing.

    Examples:
        >>> with tg.nn.attention.sdpa_kernel(tg.nn.attention.SDPBackend.MATH):
        ...     print(tg.nn.functional.scaled_dot_product_attention(*[tg.ones(1, 2, 4)] * 3).shape)
        telegrad.Size([1, 2, 4])
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise InvalidChoice(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
            f"{type(backends).__name__}"
        )
    given = [backends] if isinstance(backends, SDPBackend) else backends
    if not all(isinstance(backend, SDPBackend) for backend in given):
        raise InvalidChoice("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    yield
