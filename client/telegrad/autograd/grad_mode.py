"""``telegrad.autograd.grad_mode``: the grad modes, and the setting for torch's backward threads."""

from __future__ import annotations

import threading

from telegrad_engine.context import Mode, enable_grad, inference_mode, no_grad, set_grad_enabled


class _Threads(threading.local):
    enabled = True


_threads = _Threads()


def is_multithreading_enabled() -> bool:
    """Return the last value of :class:`set_multithreading_enabled`.

    Examples:
        >>> tg.autograd.is_multithreading_enabled()
        True
    """
    return _threads.enabled


class set_multithreading_enabled(Mode):
    """Set whether backward may use several threads: at once, or with ``with`` until the end of the block.

    The setting has no effect: a session computes a pass in order, however many threads its kernels use.

    ``mode`` is the setting.

    Examples:
        >>> with tg.autograd.set_multithreading_enabled(False):
        ...     print(tg.autograd.is_multithreading_enabled())
        False
    """

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.mode = mode
        self.prev = _threads.enabled
        _threads.enabled = mode

    def __enter__(self) -> None:
        _threads.enabled = self.mode

    def __exit__(self, *exc: object) -> None:
        _threads.enabled = self.prev

    def _copy(self) -> Mode:
        return set_multithreading_enabled(self.mode)


__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]
__all__ += ["is_multithreading_enabled", "set_multithreading_enabled"]
