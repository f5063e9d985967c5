"""``torch.autograd.forward_ad``, for the engine's tensors and for the SDK's.

Inside a level a tensor may have a tangent, and operations compute the tangents of their results (:mod:`.tangents`).
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, ClassVar, NamedTuple

from ..context import Mode, generator, observed_by, state
from ..errors import InvalidArgument, InvalidOperation, InvalidValue
from ..graph.backward_pass import Values
from ..graph.node import Node
from ..tensor.base import Tracked
from ..tensor.gradient_values import GraphValues
from .tangents import Execute, Level, transposed


class UnpackedDualTensor(NamedTuple):
    """The parts of a dual tensor; ``tangent`` is None if it has none."""

    primal: Any
    tangent: Any


def check_floating(what: str, tensor: Any) -> None:
    """Raise InvalidValue unless the dtype is a floating-point one."""
    if not tensor.is_floating_point():
        raise InvalidValue(f"Expected {what} to be floating point or complex, but got: torch.{tensor.dtype.name}")


class ForwardAD(threading.local):
    """The functions for one kind of tensors, and the level that each thread has entered."""

    enabled = True
    """Whether forward mode is on, even outside a level."""

    def __init__(self, new_level: Callable[[ForwardAD], Level]) -> None:
        self._new_level = new_level
        self._exits = ExitStack()
        self.level: Level | None = None

    def enter_dual_level(self) -> int:
        """Begin forward mode on this thread, and return the level, which is 0.

        Raises InvalidOperation inside a level.
        """
        if self.level is not None:
            raise InvalidOperation("Nested forward mode AD is not supported at the moment")
        self.level = self._new_level(self)
        self._exits.enter_context(self.level.activated())
        return 0

    def exit_dual_level(self, *, level: int | None = None) -> None:
        """End forward mode and discard all tangents. Raises InvalidOperation if no level was entered."""
        if level is not None and level != (-1 if self.level is None else 0):
            raise InvalidOperation(
                "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
            )
        if self.level is None:
            raise InvalidOperation("Dual level must be a positive number.")
        self._exits.close()
        self.level.end()
        self.level = None

    def make_dual(self, tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
        """Return a view of ``tensor`` with a tangent of the same shape.

        Raises InvalidOperation outside a level or if a tensor already has a tangent, InvalidValue for dtypes without a
        derivative, and ShapeMismatch for a tangent of another shape.
        """
        entered = self.level
        if (entered is None and level is None) or (level is not None and level < 0):
            raise InvalidOperation(
                "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() "
                "first."
            )
        check_floating("primal", tensor)
        check_floating("tangent", tangent)
        if level not in (None, 0) or entered is None:
            raise InvalidOperation("Invalid level given to _make_dual")
        if not entered.enabled:
            return _view(tensor)
        if entered.of(tensor) is not None:
            raise InvalidOperation(
                "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not "
                "supported."
            )
        if entered.of(tangent) is not None:
            raise InvalidOperation(
                "Setting a forward grad that itself has a forward gradient at the same level0 is not supported."
            )
        with entered.suspended():
            dual = _view(tensor)
        entered.give(dual, tangent)
        return dual

    def unpack_dual(self, tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
        """Return the value of ``tensor`` without its tangent, and its tangent or None.

        Inside a level, raises InvalidArgument unless ``tensor`` is a tensor.
        """
        entered = self.level
        if entered is None:
            return UnpackedDualTensor(tensor, None)
        if not hasattr(tensor, "_data"):
            raise InvalidArgument(
                f"_unpack_dual(): argument 'dual' (position 1) must be Tensor, not {type(tensor).__name__}"
            )
        tangent = entered.of(tensor) if level in (None, 0) and entered.enabled else None
        with entered.suspended():
            primal = _view(tensor)
        entered.strip(primal)
        return UnpackedDualTensor(primal, tangent)

    def is_enabled(self) -> bool:
        """Whether forward mode is on, even outside a level.

        It is off in a Function's forward and ``jvp``, and in inference mode.
        """
        return self.enabled and not state.inference and (self.level is None or not self.level.is_suspended)


class EnterLevel(Mode):
    """Context manager or decorator that enters a level."""

    functions: ClassVar[ForwardAD]

    def __enter__(self) -> int:  # type: ignore[override]
        return self.functions.enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        self.functions.exit_dual_level()


class SwitchForwardMode(Mode):
    """Switch forward mode on or off at once; as a context manager, until the end of the block."""

    functions: ClassVar[ForwardAD]

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.enabled = bool(mode)
        self._before = self.functions.enabled
        self.__enter__()

    def __enter__(self) -> None:
        self.functions.enabled = self.enabled

    def __exit__(self, *exc: object) -> None:
        self.functions.enabled = self._before

    def _copy(self) -> Mode:
        return type(self)(self.enabled)


def _view(tensor: Any) -> Any:
    return tensor.view(tuple(tensor.shape))


# The engine's tensors ------------------------------------------------------------------------------------


class ForwardMode(Level):
    """A level that also restores the tangents of saved tensors, for a backward inside of it."""

    def __init__(self, switch: Any) -> None:
        super().__init__(switch)
        self._saved: weakref.WeakKeyDictionary[Node, Mapping[int, Any]] = weakref.WeakKeyDictionary()

    def activated(self) -> AbstractContextManager[Any]:
        """Return a context in which the level observes this thread."""
        return observed_by(self)

    def end(self) -> None:
        """Discard all tangents."""
        super().end()
        self._saved.clear()

    def pushed(
        self, execute: Execute, op: Any, inputs: tuple[Any, ...], attrs: Any, tangents: Sequence[Any]
    ) -> tuple[Sequence[Any], Any]:
        """Compute the tangents on stand-ins for the inputs, so that the graph of the results does not show it."""
        before = copy.deepcopy(generator()) if op.random else None
        found = transposed(execute, op, inputs, attrs, tangents)
        if before is not None:
            state.generator = before  # the op draws the same numbers
        return found, None

    def gradients(self, values: Any, tensor: Any) -> Any:
        """Return Values whose gradients are tensors if tangents are enabled, because gradients have tangents too."""
        return super().gradients(DualValues(tensor) if self.enabled else values, tensor)

    def remember(self, outputs: Sequence[Any], tangents: Sequence[Any], results: Sequence[Any]) -> None:
        """Store the tangents of a node's saved inputs and results."""
        node = outputs[0]._node if outputs else None
        if node is None:
            return
        found: dict[int, Any] = {}
        for position, (source, key) in enumerate(node.plan.saves):
            tangent = tangents[key] if source == "input" else results[key] if source == "output" else None
            if tangent is not None:
                found[position] = tangent
        if found:
            self._saved[node] = found

    def remember_outputs(self, node: Node | None, tangents: Sequence[Any]) -> None:
        """Store the tangents of a Function's outputs, which it may have saved."""
        if node is not None:
            self._saved[node] = {nr: tangent for nr, tangent in enumerate(tangents) if tangent is not None}

    def unpacked(self, node: Any, values: Sequence[Any]) -> None:
        """Restore the tangents of saved tensors."""
        if self.enabled:
            for position, tangent in self._saved.get(node, {}).items():
                value = values[position]
                for tensor, own in zip(value, tangent, strict=True) if isinstance(value, list) else [(value, tangent)]:
                    if own is not None and isinstance(tensor, Tracked):
                        self.give(tensor, own)
        super().unpacked(node, values)

    def unpacked_output(self, node: Node | None, output_nr: int, output: Any) -> None:
        """Restore the tangent of an output that a custom Function saved."""
        tangent = self._saved.get(node, {}).get(output_nr) if self.enabled and node is not None else None
        if tangent is not None:
            self.give(output, tangent)
        super().unpacked_output(node, output_nr, output)


class DualValues(GraphValues):
    """Gradients as tensors that are not recorded, but have tangents. ``.grad`` gets values without tangents."""

    def __init__(self, like: Any) -> None:
        super().__init__(like._graph_class, recording=False)

    def accumulate(self, tensor: Any, grad: Any, may_mutate: bool) -> None:
        """Add a gradient to ``tensor.grad`` as a pass on arrays does."""
        values: Values = tensor._array_values()
        values.accumulate(tensor, grad._data, False)


FORWARD_AD = ForwardAD(ForwardMode)
enter_dual_level, exit_dual_level = FORWARD_AD.enter_dual_level, FORWARD_AD.exit_dual_level
make_dual, unpack_dual = FORWARD_AD.make_dual, FORWARD_AD.unpack_dual
_is_fwd_grad_enabled = FORWARD_AD.is_enabled


class dual_level(EnterLevel):
    """Context manager or decorator that enables forward mode; a ``with`` statement binds the level."""

    functions = FORWARD_AD


class _set_fwd_grad_enabled(SwitchForwardMode):
    functions = FORWARD_AD


__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]
