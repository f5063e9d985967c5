"""Forward mode, as in ``torch.autograd.forward_ad``: operations compute tangents together with values.

Inside a level (:mod:`.level`) a tensor may have a tangent. The tangents of results are computed (:mod:`.push`) by the
transposed derivative of the op, or by the ``jvp`` of a Function. The engine and the SDK have a kind of level each,
which sees the ops of a thread: here an observer (:mod:`.observer`). docs/decisions/0012 gives the reasons.
"""

from __future__ import annotations

from .functions import EnterLevel, ForwardAD, SwitchForwardMode, UnpackedDualTensor
from .observer import ForwardMode

FORWARD_AD = ForwardAD(ForwardMode)
"""The functions for the engine's tensors."""
enter_dual_level, exit_dual_level = FORWARD_AD.enter_dual_level, FORWARD_AD.exit_dual_level
make_dual, unpack_dual = FORWARD_AD.make_dual, FORWARD_AD.unpack_dual
_is_fwd_grad_enabled = FORWARD_AD.is_enabled


class dual_level(EnterLevel):
    """Context manager or decorator that enables forward mode; a ``with`` statement binds the level."""

    functions = FORWARD_AD


class _set_fwd_grad_enabled(SwitchForwardMode):
    functions = FORWARD_AD


__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]
