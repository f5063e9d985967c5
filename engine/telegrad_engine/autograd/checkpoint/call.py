"""``checkpoint`` and ``checkpoint_sequential``: they check their options and choose the kind of checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from ...context import state
from ...errors import InvalidValue, NotSupported
from .frame import Frame
from .reentrant import checkpoint_reentrant

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]
DETERMINISM_CHECKS = ["default", "none"]
_early_stop: list[bool] = []
"""The values of the active ``set_checkpoint_early_stop`` blocks, innermost last."""


def noop_context_fn() -> Contexts:
    """Return null contexts for the function and for its recomputation."""
    return nullcontext(), nullcontext()


class Call(NamedTuple):
    """A call of a function under a checkpoint without reentrance, and its options."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    around_again: AbstractContextManager[Any]
    """The context in which the function is recomputed."""
    preserve: bool
    """Whether the recomputation draws the same random numbers as the first run."""
    compare: bool
    early_stop: bool


class Checkpointing:
    """``checkpoint`` and ``checkpoint_sequential``, over two functions that run a checkpointed call.

    ``recomputed(call)`` runs it without reentrance, ``reentrant(function, preserve, args)`` with it.
    """

    def __init__(self, recomputed: Callable[[Call], Any], reentrant: Callable[..., Any]) -> None:
        self._recomputed, self._reentrant = recomputed, reentrant

    def checkpoint(
        self,
        function: Callable[..., Any],
        *args: Any,
        use_reentrant: bool | None = None,
        context_fn: Callable[[], Contexts] = noop_context_fn,
        determinism_check: str = "default",
        debug: bool = False,
        early_stop: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Return ``function(*args, **kwargs)``, saving its arguments instead of the tensors for its derivatives.

        Backward runs the function again, with the same random numbers unless ``preserve_rng_state=False``. The two
        runs are in the contexts that ``context_fn`` returns. With ``early_stop`` the second run stops as soon as all
        saved tensors are recomputed. Backward raises CheckpointError if the second run saves other tensors:
        ``determinism_check`` "default" compares their shapes and dtypes, "none" only their number. Raises NotSupported
        with ``debug``. With ``use_reentrant``, backward must be called without ``inputs``, and keyword arguments are
        rejected.
        """
        if use_reentrant is None:
            _warn_unset(
                "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting in PyTorch "
                "2.9, calling checkpoint without use_reentrant will raise an exception."
            )
            use_reentrant = True
        preserve = bool(kwargs.pop("preserve_rng_state", True))
        if use_reentrant:
            if kwargs:
                raise InvalidValue("Unexpected keyword arguments: " + ",".join(kwargs))
            if context_fn is not noop_context_fn or debug:
                raise InvalidValue("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
            return self._reentrant(function, preserve, args)
        if debug and context_fn is not noop_context_fn:
            raise InvalidValue("debug=True is incompatible with non-default context_fn")
        if debug:
            raise NotSupported("checkpoint(debug=True) is not supported: log what the function computes instead")
        if determinism_check not in DETERMINISM_CHECKS:
            raise InvalidValue(f"determinism_check should be one of {DETERMINISM_CHECKS}, but got {determinism_check}")
        around, around_again = context_fn()
        if not state.grad_enabled:
            with around:
                return function(*args, **kwargs)
        stop = _early_stop[-1] if _early_stop else early_stop
        with around:
            return self._recomputed(
                Call(function, args, kwargs, around_again, preserve, determinism_check == "default", stop)
            )

    def checkpoint_sequential(
        self, functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
    ) -> Any:
        """Apply ``functions``, a sequence or a Sequential, to ``input`` in turn, in ``segments`` checkpoints.

        The last segment is not checkpointed, because backward begins with it. Raises ValueError if there are more
        segments than functions.
        """
        if use_reentrant is None:
            _warn_unset(
                "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed "
                "explicitly. In version 2.9 we will raise an exception if use_reentrant is not passed."
            )
            use_reentrant = True
        preserve = bool(kwargs.pop("preserve_rng_state", True))
        if kwargs:
            raise InvalidValue("Unexpected keyword arguments: " + ",".join(kwargs))
        steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
        size = len(steps) // segments
        last = size * (segments - 1)
        for start in range(0, last, size):
            chain = _chain(steps[start : start + size])
            input = self.checkpoint(chain, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
        return _chain(steps[last:])(input)


def _recomputed(call: Call) -> Any:
    frame = Frame(
        call.function,
        call.args,
        call.kwargs,
        call.around_again,
        call.preserve,
        call.compare,
        call.early_stop,
    )
    return frame.run(call.function, call.args, call.kwargs)


_OURS = Checkpointing(_recomputed, checkpoint_reentrant)
checkpoint, checkpoint_sequential = _OURS.checkpoint, _OURS.checkpoint_sequential


def _chain(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return run


def _warn_unset(text: str) -> None:
    warnings.warn(
        f"{text} use_reentrant=False is recommended, but if you need to preserve the current default behavior, you can "
        "pass use_reentrant=True. Refer to docs for more details on the differences between the two variants.",
        UserWarning,
        stacklevel=3,
    )


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Set whether the recomputation stops early for all checkpoints made inside the block."""
    _early_stop.append(enable)
    try:
        yield
    finally:
        _early_stop.pop()
