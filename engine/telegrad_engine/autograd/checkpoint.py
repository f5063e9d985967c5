"""``torch.utils.checkpoint``: backward recomputes the tensors that forward did not save.

Without reentrance (recommended) the graph is recorded as usual, but each tensor that a node would save is replaced by
a number. When backward unpacks the first of them, the function runs again, and the tensors that it saves this time are
returned by the same numbers. With reentrance the whole call is one Function, whose backward runs the function again and
a backward pass inside it. In a session the function is a section of the program's instructions
(:mod:`telegrad_engine.program.checkpoint_sections`), and both kinds use the first method.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from ..context import enable_grad, generator, state
from ..errors import CheckpointError, InvalidOperation, InvalidValue, NotSupported
from ..graph import differentiation
from ..transforms.saved_tensor_hooks import saved_tensors_hooks
from .custom_function import Function
from .custom_function.ctx import Saved, is_tensor
from .custom_function.function import FunctionNode


class CheckpointedCall(NamedTuple):
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


class RandomState:
    """The random generator and autocast state of a function's first run, restored for the second."""

    def __init__(self, preserve: bool) -> None:
        self._generator = copy.deepcopy(generator()) if preserve else None
        self._autocast = state.autocast

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore the state inside the block."""
        before = state.generator, state.autocast
        state.autocast = self._autocast
        if self._generator is not None:
            state.generator = copy.deepcopy(self._generator)
        try:
            yield
        finally:
            state.generator, state.autocast = before


class _Done(BaseException):
    """Stops the recomputation early. It is not an Exception, so that the function's own handlers do not catch it."""


class Frame:
    """A checkpointed call, whose saved tensors are replaced by numbers."""

    def __init__(self, call: CheckpointedCall) -> None:
        self.function = call.function
        self.args = [Saved(a) if is_tensor(a) else a for a in call.args]
        self.kwargs = {name: Saved(value) if is_tensor(value) else value for name, value in call.kwargs.items()}
        self.around = call.around_again
        self.random = RandomState(call.preserve)
        self.compare, self.early_stop = call.compare, call.early_stop
        self.metadata: list[dict[str, Any]] = []
        """The metadata of each tensor that forward would have saved, by number."""
        self.recomputed: dict[int, Any] = {}
        """The recomputed tensors that were not requested yet, by number."""

    def numbering(self) -> AbstractContextManager[None]:
        """Return a context in which each saved tensor is replaced by its number."""
        return saved_tensors_hooks(self._number, self._recall)

    def _number(self, tensor: Any) -> int:
        self.metadata.append(_metadata(tensor))
        return len(self.metadata) - 1

    def _recall(self, number: int) -> Any:
        """Return the saved tensor of this number, running the function again if necessary."""
        if number not in self.recomputed:
            self._recompute()
        return self.recomputed.pop(number)

    def _recompute(self) -> None:
        args = [a.unpack() if isinstance(a, Saved) else a for a in self.args]
        kwargs = {name: a.unpack() if isinstance(a, Saved) else a for name, a in self.kwargs.items()}
        recomputed: dict[int, Any] = {}
        self.recomputed = recomputed

        def collect(tensor: Any) -> Any:
            number = len(recomputed)
            if number >= len(self.metadata):
                raise CheckpointError(
                    "torch.utils.checkpoint: trying to save more tensors during recomputation than during the original "
                    "forward pass."
                )
            kept = recomputed[number] = tensor.detach()
            if self.early_stop and number + 1 == len(self.metadata):
                raise _Done(recomputed)
            return kept

        try:
            hooks = saved_tensors_hooks(collect, lambda tensor: tensor)
            with enable_grad(), self.random.restored(), self.around, hooks:
                self.function(*args, **kwargs)
        except _Done as done:
            if done.args[0] is not recomputed:
                raise
        self._check(recomputed)

    def _check(self, found: dict[int, Any]) -> None:
        """Raise CheckpointError unless the second run saved tensors like those of the first run."""
        before = self.metadata
        if len(found) != len(before):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(before)}\n"
                f"Number of tensors saved during recomputation: {len(found)}."
            )
        if not self.compare:
            return
        different = "".join(
            f"tensor at position {number}:\nsaved metadata: {saved}\nrecomputed metadata: {_metadata(found[number])}\n"
            for number, saved in enumerate(before)
            if saved != _metadata(found[number])
        )
        if different:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than "
                f"during the forward pass.\n{different}."
            )


def _metadata(tensor: Any) -> dict[str, Any]:
    return {"shape": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}


# With reentrance -----------------------------------------------------------------------------------------


WHOLE_ONLY = (
    "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
    "parameter to .backward(). To resolve this error, you can either set use_reentrant=False, or call "
    ".backward() without passing the `inputs` argument."
)


def checkpoint_reentrant(function: Callable[..., Any], preserve: bool, args: tuple[Any, ...]) -> Any:
    """Return ``function(*args)``, recorded as one node. Warns if no argument requires grad."""
    if not any(is_tensor(a) and a.requires_grad for a in args):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", UserWarning, stacklevel=3)
    result = CheckpointFunction.apply(function, preserve, *args)
    for output in result if isinstance(result, tuple) else (result,):
        if is_tensor(output) and isinstance(output.grad_fn, FunctionNode):
            output.grad_fn.__class__ = WholePassNode
    return result


class CheckpointFunction(Function):
    """The Function that runs a checkpointed call as one operation."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """Run the function without recording, and save its arguments."""
        ctx.function = function
        ctx.random = RandomState(preserve)
        ctx.constants = [None if is_tensor(a) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if is_tensor(a)]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Run the function again with recording, and differentiate the result."""
        args = list(ctx.constants)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[place] = tensor.detach().requires_grad_(tensor.requires_grad)
        with enable_grad(), ctx.random.restored():
            result = ctx.function(*args)
        outputs = result if isinstance(result, tuple) else (result,)
        tracked = [
            (out, grad) for out, grad in zip(outputs, grads, strict=True) if is_tensor(out) and out.requires_grad
        ]
        if not tracked:
            raise InvalidOperation("none of output has requires_grad=True, this checkpoint() is not necessary")
        roots, seeds = zip(*tracked, strict=True)
        differentiation.backward(roots, seeds)
        return None, None, *[a.grad if is_tensor(a) else None for a in args]


class WholePassNode(FunctionNode):
    """The node of a reentrant checkpoint, which rejects passes with ``inputs``: the inner pass fills all leaves."""

    def evaluate(self, run: Any, grads: Sequence[Any]) -> None:
        """Run the backward. Raises InvalidOperation if the pass computes only the gradients of chosen inputs."""
        if run.wanted is not None:
            raise InvalidOperation(WHOLE_ONLY)
        super().evaluate(run, grads)


# The functions -------------------------------------------------------------------------------------------


Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]
DETERMINISM_CHECKS = ["default", "none"]
_early_stop: list[bool] = []
"""The values of the active ``set_checkpoint_early_stop`` blocks, innermost last."""


def noop_context_fn() -> Contexts:
    """Return null contexts for the function and for its recomputation.

    Examples:
        >>> first, second = tg.utils.checkpoint.noop_context_fn()
    """
    return nullcontext(), nullcontext()


class Checkpointing:
    """``checkpoint`` and ``checkpoint_sequential``, over two functions that run a checkpointed call.

    ``recomputed(call)`` runs it without reentrance, ``reentrant(function, preserve, args)`` with it.
    """

    def __init__(self, recomputed: Callable[[CheckpointedCall], Any], reentrant: Callable[..., Any]) -> None:
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

        Examples:
            >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
            >>> tg.utils.checkpoint.checkpoint(lambda x: x.exp().exp(), x, use_reentrant=False).sum().backward()
            >>> x.grad
            tensor([   41.1936, 11956.8027])
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
                CheckpointedCall(function, args, kwargs, around_again, preserve, determinism_check == "default", stop)
            )

    def checkpoint_sequential(
        self, functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
    ) -> Any:
        """Apply ``functions``, a sequence or a Sequential, to ``input`` in turn, in ``segments`` checkpoints.

        The last segment is not checkpointed, because backward begins with it. Raises ValueError if there are more
        segments than functions.

        ``use_reentrant`` and ``kwargs`` are as in ``checkpoint``.

        Examples:
            >>> model = tg.nn.Sequential(tg.nn.Linear(2, 2), tg.nn.ReLU(), tg.nn.Linear(2, 1))
            >>> tg.utils.checkpoint.checkpoint_sequential(model, 2, tg.ones(3, 2), use_reentrant=False).shape
            telegrad.Size([3, 1])
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


def _recomputed(call: CheckpointedCall) -> Any:
    with Frame(call).numbering():
        return call.function(*call.args, **call.kwargs)


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
    """Set whether the recomputation stops early for all checkpoints made inside the block.

    ``enable`` is the setting.

    Examples:
        >>> with tg.utils.checkpoint.set_checkpoint_early_stop(False):
        ...     y = tg.utils.checkpoint.checkpoint(tg.exp, tg.ones(2, requires_grad=True), use_reentrant=False)
    """
    _early_stop.append(enable)
    try:
        yield
    finally:
        _early_stop.pop()
