"""``telegrad.autograd.grad_mode``: the modes of recording, and the switch of torch's backward threads."""

from __future__ import annotations

import threading

from telegrad_engine.context import Mode, enable_grad, inference_mode, no_grad, set_grad_enabled


class _Threads(threading.local):
    enabled = True


_threads = _Threads()


def is_multithreading_enabled() -> bool:
    """The value that :class:`set_multithreading_enabled` set last."""
    return _threads.enabled


class set_multithreading_enabled(Mode):
    """Say whether backward may use several threads, at once or, used with ``with``, until the block's end.

    It is noted and has no effect: a session computes a pass in order, whatever threads its kernels use.
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


__all__ = [
    "enable_grad",
    "inference_mode",
    "is_multithreading_enabled",
    "no_grad",
    "set_grad_enabled",
    "set_multithreading_enabled",
]
