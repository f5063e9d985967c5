"""``telegrad.utils.checkpoint``: the session keeps a function's arguments and recomputes the rest in backward.

The function runs once on the client, like any code. Its instructions are marked as a checkpoint, and backward runs
them again in the session, so recomputing takes no message. The function's Python code does not run twice: the values
that it fetched and the branches that it took stay the same.

With a policy, a selective checkpoint saves some results instead of recomputing them. The policy runs on the client
while the function is recorded; the session keeps the saved results.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from telegrad_engine.autograd.checkpoint import (
    CheckpointedCall,
    Checkpointing,
    noop_context_fn,
    set_checkpoint_early_stop,
)
from telegrad_engine.context import below, chain, no_grad, observed_by, state
from telegrad_engine.errors import CheckpointError, InvalidArgument, InvalidValue, NotSupported
from telegrad_engine.instrumentation import Observer, Run
from telegrad_engine.program.checkpoint_sections import can_save
from telegrad_engine.schema.op import Op
from telegrad_engine.tensor.execution import run_composite

from ..aten import OpOverload, OpOverloadPacket, overload_of
from ..autograd.client_evaluation import mark_whole
from ..exclusions import attribute_of
from ..tape.dispatch import active
from ..tensor.handle import OPS, Tensor, recorder_of, refs


class CheckpointPolicy(enum.Enum):
    """The treatment of an op's result: SAVE and CPU_OFFLOAD save it, RECOMPUTE computes it again.

    MUST and PREFER are equivalent here.

    Examples:
        >>> tg.utils.checkpoint.CheckpointPolicy.MUST_SAVE.name
        'MUST_SAVE'
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


RECOMPUTED = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


class SelectiveCheckpointContext:
    """The first argument of a policy. ``is_recompute`` is False: policies are called only in the forward pass.

    ``op_output`` is None.

    Examples:
        >>> tg.utils.checkpoint.SelectiveCheckpointContext(is_recompute=False).is_recompute
        False
    """

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


class SavingPolicy(nullcontext[None]):
    """The context of the recomputation, which holds the policy."""

    def __init__(self, policy: Callable[..., Any], allow_mutation: bool) -> None:
        super().__init__()
        self.policy, self.allow_mutation = policy, allow_mutation

    def saves(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], result: Any) -> bool:
        """Whether the policy saves the result of an op."""
        context = SelectiveCheckpointContext(is_recompute=False, op_output=result)
        decision = self.policy(context, overload_of(op, inputs), *inputs, **attrs)
        return decision if isinstance(decision, bool) else decision not in RECOMPUTED


class Selection(Observer):
    """Calls the policy for each op of one checkpoint, and marks the results to save."""

    sees_ops = True

    def __init__(self, policy: SavingPolicy, checkpoint: str) -> None:
        self._policy = policy
        self._attrs: dict[str, Any] = {"checkpoint": checkpoint}
        if policy.allow_mutation:
            self._attrs["allow_mutation"] = True

    def op(self, run: Run, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Return the op's result, after marking it if the policy saves it."""
        if op.composite:
            return run_composite(op, OPS, inputs, attrs)
        with below(self):
            result = super().op(run, op, inputs, attrs)
            if self._policy.saves(op, inputs, attrs, result) and can_save(op):
                outputs: list[Tensor] = list(result) if isinstance(result, tuple) else [result]
                names = tuple([tensor._id for tensor in outputs])
                outputs[0]._recorder.emit("save_results", [names], (), self._attrs)
        return result

    def in_place(self, run: Run, tensor: Any, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Change ``tensor`` in place. In-place ops are always recomputed."""
        with below(self):
            return super().in_place(run, tensor, op, inputs, attrs)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return the contexts for ``checkpoint``'s ``context_fn``: results that the policy saves are not recomputed.

    The policy, ``policy_fn_or_list``, is ``policy(ctx, op, *args, **kwargs)``, which returns a CheckpointPolicy, or a
    list of ops to save, such as ``telegrad.ops.aten.mm.default``. Views, in-place ops and random draws are always
    recomputed. If a saved result is modified in place, backward raises RuntimeError, or recomputes it with
    ``allow_cache_entry_mutation``. Raises ValueError for anything but ops in a list, TypeError for anything but a
    policy.

    Examples:
        >>> import functools
        >>> save = [tg.ops.aten.mm.default]
        >>> contexts = functools.partial(tg.utils.checkpoint.create_selective_checkpoint_contexts, save)
        >>> x = tg.ones(2, 2, requires_grad=True)
        >>> y = tg.utils.checkpoint.checkpoint(lambda x: (x @ x).exp(), x, use_reentrant=False, context_fn=contexts)
        >>> y.sum().backward()
    """
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            _check_op(op)
        ops = set(policy_fn_or_list)
        return nullcontext(), SavingPolicy(lambda ctx, op, *args, **kwargs: op in ops, allow_cache_entry_mutation)
    if not callable(policy_fn_or_list):
        raise InvalidArgument("policy_fn_or_list must be either a function or a list of ops.")
    return nullcontext(), SavingPolicy(policy_fn_or_list, allow_cache_entry_mutation)


def _check_op(op: Any) -> None:
    if isinstance(op, OpOverload):
        return
    hint = ""
    if isinstance(op, OpOverloadPacket):
        hint = (
            "Please update the OpOverloadPacket to a specific OpOverload.For example, if you have `torch.ops.aten.mm`, "
            "change it to `torch.ops.aten.mm.default`."
        )
    raise InvalidValue(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. {hint}")


# Checkpoints ---------------------------------------------------------------------------------------------


def _recomputed(call: CheckpointedCall) -> Any:
    """Run the function as a checkpoint of the session."""
    transformed = any(each.sees_ops and not isinstance(each, Selection) for each in chain(state.observer))
    if active.tracer is not None or transformed:
        # Traced code becomes a program of its own, and ops that a transform adds are saved like any others.
        return call.function(*call.args, **call.kwargs)
    policy = call.around_again
    if not isinstance(policy, (NOOP, SavingPolicy)):
        raise NotSupported(
            "checkpoint: the recomputation runs in the session, so context_fn can only be that of "
            "create_selective_checkpoint_contexts"
        )
    tensors = tuple(a for a in (*call.args, *call.kwargs.values()) if isinstance(a, Tensor))
    recorder = recorder_of(tensors)
    options = {"preserve_rng_state": call.preserve, "determinism_check": call.compare, "early_stop": call.early_stop}
    options = {name: False for name, value in options.items() if not value}
    # Named by nesting depth, so that the programs of a loop are equal and the session recognizes them.
    attrs: dict[str, Any] = {"checkpoint": f"c{recorder.open_checkpoints}"}
    selecting: AbstractContextManager[Any] = nullcontext()
    if isinstance(policy, SavingPolicy):
        selecting, options["selective"] = observed_by(Selection(policy, attrs["checkpoint"])), True
    with recorder.lock:  # other threads may not record into the checkpoint
        recorder.emit("checkpoint", [refs(tensors)], (), attrs | options)
        recorder.open_checkpoints += 1
        try:
            with observed_by(_Unversioned()), selecting:
                return call.function(*call.args, **call.kwargs)
        finally:
            recorder.open_checkpoints -= 1
            if not recorder.closed:
                recorder.emit("end_checkpoint", (), (), attrs)
                recorder.free_dead()  # at once instead of with the next program, since this frees their memory


NOOP = type(noop_context_fn()[1])


class _Unversioned(Observer):
    """Turns off version checks of tensors that are not saved, since they may be modified."""

    def node(self, node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        if node.versions and isinstance(outputs[0], Tensor):
            node.versions = tuple((place, [0], 0) for place, _, _ in node.versions)
        super().node(node, inputs, outputs)


def _reentrant(function: Callable[..., Any], preserve: bool, args: tuple[Any, ...]) -> Any:
    """Checkpoint with torch's limits for reentrant ones: no gradient without an argument that requires grad."""
    if not any(isinstance(a, Tensor) and a.requires_grad for a in args):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", UserWarning, stacklevel=3)
        with no_grad():
            return function(*args)
    result = _OURS.checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve)
    mark_whole(result if isinstance(result, tuple) else (result,))
    return result


_OURS = Checkpointing(_recomputed, _reentrant)
checkpoint, checkpoint_sequential = _OURS.checkpoint, _OURS.checkpoint_sequential

__getattr__ = attribute_of("utils.checkpoint")

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_early_stop"]
__all__ += ["CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]
