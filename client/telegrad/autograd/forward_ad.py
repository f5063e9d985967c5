"""``telegrad.autograd.forward_ad``: forward-mode differentiation, as in torch.

Within a level a tensor may have a tangent. An op on such a tensor is recorded together with its Jacobian-vector
product: the op's derivative, which is linear in the gradient, is differentiated by the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from telegrad_engine.autograd.forward_ad.dual import UnpackedDualTensor, check_exit, make, unpack
from telegrad_engine.autograd.forward_ad.level import Level as Tangents
from telegrad_engine.autograd.forward_ad.push import push_function
from telegrad_engine.context import Mode
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.schema.op import CATALOGUE, NO_ATTRS, Op

from ..tape.transform_stack import Transform, active, below, entered
from ..tensor.handle import Tensor, functions
from .pullback import Arguments, Outputs, Pullback, recorded


class DualLevel(Transform):
    """The transform that computes the tangents of results. Levels do not nest."""

    def __init__(self) -> None:
        self.tangents = Tangents()
        self.enabled = True
        self.exits = ExitStack()

    def of(self, tensor: Any) -> Any:
        """The tangent of a tensor, or None."""
        with below(self):
            return self.tangents.of(tensor)

    def suspended(self) -> AbstractContextManager[None]:
        """Return a context manager in which tensors have no tangents."""
        return below(self)

    def give(self, tensor: Any, tangent: Any) -> None:
        """Set a tensor's tangent."""
        with below(self):
            self.tangents.give(tensor, tangent)

    def strip(self, tensor: Any) -> None:
        """Remove a tensor's tangent, even if its base has one."""
        self.tangents.strip(tensor)

    def concerns(self, op: Op, inputs: tuple[Any, ...]) -> bool:
        """Whether one of the inputs has a tangent."""
        if not self.enabled:
            return False
        with below(self):
            return self.tangents.concerns(inputs)

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
        """Apply an op and compute its results' tangents."""
        if op.composite:
            return op.kernel(functions, *inputs, **attrs)
        with below(self):
            if not op.differentiable:
                return functions._apply(op, inputs, attrs)
            if op.view:
                result = functions._apply(op, inputs, attrs)
                pushed: Sequence[Any] = _listed(functions._apply(op, (self.tangents.of(inputs[0]), *inputs[1:]), attrs))
            else:
                result, pushed = self._push(op, inputs, attrs)
            for output, tangent in zip(_listed(result), pushed, strict=True):
                if tangent is not None:
                    self.tangents.give(output, tangent)
        return result

    def _push(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Any, Sequence[Any]]:
        """The op's result and its outputs' tangents; None for outputs without a derivative."""
        moving = [x for value in inputs for x in (value if isinstance(value, tuple) else (value,)) if self._moves(x)]
        arguments = Arguments(moving)
        anew = iter(arguments.tensors)

        def replaced(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple([replaced(v) for v in value])
            return next(anew) if self._moves(value) else value

        with recorded():
            result = functions._apply(op, tuple([replaced(x) for x in inputs]), attrs)
            outputs = Outputs(arguments, _listed(result))
        pushed = Pullback(outputs).push([self.tangents.of(x) for x in moving], False)
        shown = [outputs.outward(output) for output in outputs.tensors]
        tangents = [t if raw.requires_grad else None for t, raw in zip(pushed, outputs.raws, strict=True)]
        return op.bundle(shown), tangents

    def _moves(self, value: Any) -> bool:
        return isinstance(value, Tensor) and self.tangents.of(value) is not None

    def apply_inplace(self, tensor: Any, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
        """Change a tensor and its tangent in place, so that views see both."""
        with below(self):
            target = self.tangents.of(tensor)
            if op.view:
                if target is not None:
                    target._inplace(op, (target, *inputs[1:]), attrs)
                return tensor._inplace(op, inputs, attrs)
            tangent = None
            if op.composite:
                changed = self._composite(op, tensor, inputs, attrs)
                tensor._inplace(CATALOGUE.get("copy"), (tensor, changed.detach() if tensor is changed else changed))
                tangent = self.tangents.of(changed)
            else:
                if op.differentiable:
                    tangent = self._push(op, inputs, attrs)[1][0]
                tensor._inplace(op, inputs, attrs)
            self._write(tensor, target, tangent)
        return tensor

    def _composite(self, op: Op, tensor: Any, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        with entered(self):
            return op.kernel(functions, tensor.clone(), *inputs[1:], **attrs)

    def _write(self, tensor: Any, target: Any, tangent: Any) -> None:
        """Replace the tangent of a tensor that was changed in place."""
        tangent = functions.zeros_like(tensor.detach()) if tangent is None else tangent
        if target is None and tensor._base is not None:
            self.tangents.give(tensor._base, functions.zeros_like(tensor._base.detach()))
            target = self.tangents.of(tensor)
        if target is None:
            self.tangents.give(tensor, tangent)
        else:
            target._inplace(CATALOGUE.get("copy"), (target, tangent))

    # Functions and gradients --------------------------------------------------------------------

    def enter_function(self, enter: Any, args: tuple[Any, ...]) -> Any:
        """Run a Function's forward without tangents, and compute them with its ``jvp``."""
        with below(self):
            if not self.enabled or not self.tangents.concerns(args):
                return NotImplemented
            entry = enter()
            push_function(self.tangents, entry)
            return entry

    def grad(self, grad: Any, outputs: Any, inputs: Any, grad_outputs: Any, options: Mapping[str, Any]) -> Any:
        """``autograd.grad`` for outputs with tangents: the results' tangents are the gradients of these."""
        with below(self):
            tangents = [self.tangents.of(x) for x in outputs]
            moving = [i for i, t in enumerate(tangents) if t is not None and t.requires_grad]
            if not self.enabled or not moving:
                return NotImplemented
            found = grad(outputs, inputs, grad_outputs, **{**options, "retain_graph": True})
            seeds = [None] * len(outputs) if grad_outputs is None else grad_outputs
            seeds = [seeds] if isinstance(seeds, Tensor) else list(seeds)
            pushed = grad(
                [tangents[i] for i in moving],
                inputs,
                [seeds[i] for i in moving],
                **{**options, "allow_unused": True, "materialize_grads": False},
            )
            for result, tangent in zip(found, pushed, strict=True):
                if result is not None and tangent is not None:
                    self.tangents.give(result, tangent)
        return found


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _entered() -> DualLevel | None:
    return next((t for t in reversed(active.stack) if isinstance(t, DualLevel)), None)


def enter_dual_level() -> int:
    """Begin forward mode on this thread and return the level, which is always 0: levels do not nest."""
    if _entered() is not None:
        raise InvalidOperation("Nested forward mode AD is not supported at the moment")
    level = DualLevel()
    level.exits.enter_context(entered(level))
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End forward mode and discard all tangents. Raises InvalidOperation if no level was entered."""
    found = _entered()
    check_exit(level, found)
    assert found is not None, "it was checked"
    found.tangents.end()
    found.exits.close()


class dual_level(Mode):
    """Forward mode inside a ``with`` block or a decorated function; the context value is the level."""

    def __enter__(self) -> int:  # type: ignore[override]
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """Return a view of ``tensor`` with a tangent of the same shape.

    Raises InvalidOperation outside a level or if there is a tangent already, InvalidValue for dtypes without a
    derivative, ShapeMismatch for another shape.
    """
    return make(tensor, tangent, level, _entered())


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """Return the value of ``tensor`` without its tangent, and the tangent or None.

    Raises InvalidArgument within a level for anything but a tensor.
    """
    return unpack(tensor, level, _entered())


class _set_fwd_grad_enabled(Mode):
    """Turn forward mode off or on within a level: at once, or with ``with`` until the end of the block."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.enabled = bool(mode)
        self._before = _is_fwd_grad_enabled()
        _switch(self.enabled)

    def __enter__(self) -> None:
        _switch(self.enabled)

    def __exit__(self, *exc: object) -> None:
        _switch(self._before)

    def _copy(self) -> Mode:
        return _set_fwd_grad_enabled(self.enabled)


def _is_fwd_grad_enabled() -> bool:
    """Whether results get tangents within a level."""
    found = _entered()
    return found is None or found.enabled


def _switch(enabled: bool) -> None:
    found = _entered()
    if found is not None:
        found.enabled = enabled


__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]
