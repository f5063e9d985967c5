"""``GradScaler``: losses scaled up, so that float16 gradients do not vanish, and gradients scaled back down.

Written over tensors and what every optimizer has (:class:`Steps`), so it serves the engine's and the SDK's alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Protocol

import numpy as np

from .. import dtypes
from ..errors import InvalidChoice, InvalidOperation, InvalidValue
from ..modes import no_grad


class Steps(Protocol):
    """What a scaler needs of an optimizer: its parameters by group, and ``step``."""

    param_groups: list[dict[str, Any]]

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Move the parameters by their gradients."""


class _Stage(Enum):
    READY, UNSCALED, STEPPED = range(3)


class _Progress:
    """Where an optimizer is within an iteration."""

    def __init__(self) -> None:
        self.stage = _Stage.READY
        self.finite: Any = None
        """A bool tensor: whether all gradients were finite; None until one was looked at."""
        self.found_inf: bool | None = None
        """The same as a number, once somebody had to know."""


class GradScaler:
    """Dynamic loss scaling: ``scale(loss).backward()``, ``step(optimizer)``, ``update()``.

    A step whose gradients have an infinity or a NaN is skipped, and the scale multiplied by ``backoff_factor``;
    after ``growth_interval`` steps without one it is multiplied by ``growth_factor``. Not ``enabled``, it does
    nothing. Misuse raises in torch's words.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if not enabled:
            return
        if growth_factor <= 1.0:
            raise InvalidChoice("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise InvalidChoice("The backoff factor must be < 1.0.")
        self._value: float = init_scale
        self._scale: Any = None
        """The scale as a tensor where the outputs are, made when the first ones come."""
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0
        self._optimizers: dict[int, _Progress] = {}

    # An iteration ------------------------------------------------------------------------

    def scale(self, outputs: Any) -> Any:
        """A tensor, or the tensors of an iterable, times the scale."""
        if not self._enabled:
            return outputs
        if hasattr(outputs, "_cell"):
            if self._scale is None:
                self._scale = outputs.new_tensor(self._value, dtype=dtypes.float32)
            return outputs * self._scale
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(output) for output in outputs)
        if isinstance(outputs, Iterable):
            return map(self.scale, outputs)
        raise InvalidValue("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Steps) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, in place: to clip them, for example."""
        if not self._enabled:
            return
        self._check_scaled("unscale_")
        progress = self._progress(optimizer)
        if progress.stage is _Stage.UNSCALED:
            raise InvalidOperation("unscale_() has already been called on this optimizer since the last update().")
        if progress.stage is _Stage.STEPPED:
            raise InvalidOperation("unscale_() is being called after step().")
        self._unscale(optimizer, progress)
        progress.stage = _Stage.UNSCALED

    @no_grad()
    def _unscale(self, optimizer: Steps, progress: _Progress) -> None:
        inverse = float(np.float32(1.0 / self._value))
        for group in optimizer.param_groups:
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                if grad.dtype == dtypes.float16:
                    raise InvalidValue("Attempting to unscale FP16 gradients.")
                finite = grad.isfinite().all()
                progress.finite = finite if progress.finite is None else progress.finite.logical_and(finite)
                grad.mul_(inverse)

    def step(self, optimizer: Steps, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step()``, the gradients unscaled before, unless one of them is not finite; what that returns."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise InvalidOperation("Closure use is not currently supported if GradScaler is enabled.")
        self._check_scaled("step")
        progress = self._progress(optimizer)
        if progress.stage is _Stage.STEPPED:
            raise InvalidOperation("step() has already been called since the last update().")
        if progress.stage is _Stage.READY:
            self.unscale_(optimizer)
        if progress.finite is None:
            raise InvalidChoice("No inf checks were recorded for this optimizer.")
        result = None if self._found_inf(progress) else optimizer.step(*args, **kwargs)
        progress.stage = _Stage.STEPPED
        return result

    def update(self, new_scale: Any = None) -> None:
        """End the iteration: adapt the scale to what was found, or set it to a number or a tensor of one."""
        if not self._enabled:
            return
        self._check_scaled("update")
        if new_scale is not None:
            self._set(_as_scale(new_scale))
        else:
            looked = [p for p in self._optimizers.values() if p.finite is not None]
            if not looked:
                raise InvalidChoice("No inf checks were recorded prior to update.")
            self._adapt(any(self._found_inf(p) for p in looked))
        self._optimizers = {}

    def _adapt(self, found_inf: bool) -> None:
        """The rule of Micikevicius et al. 2018, section 3.2, with a growth only to what float32 holds."""
        if found_inf:
            self._set(self._value * self._backoff_factor)
            self._growth_tracker = 0
            return
        self._growth_tracker += 1
        if self._growth_tracker == self._growth_interval:
            with np.errstate(over="ignore"):
                grown = float(np.float32(self._value * self._growth_factor))
            if math.isfinite(grown):
                self._set(grown)
            self._growth_tracker = 0

    def _set(self, value: float) -> None:
        value = float(np.float32(value))
        if value != self._value:
            self._value = value
            self._scale = self._scale.new_tensor(value, dtype=dtypes.float32)

    @staticmethod
    def _found_inf(progress: _Progress) -> bool:
        if progress.found_inf is None:
            progress.found_inf = not bool(progress.finite)
        return progress.found_inf

    def _check_scaled(self, what: str) -> None:
        if self._scale is None:
            raise InvalidChoice(
                f"Attempted {what} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )

    def _progress(self, optimizer: Steps) -> _Progress:
        return self._optimizers.setdefault(id(optimizer), _Progress())

    # Looking and setting -----------------------------------------------------------------

    def is_enabled(self) -> bool:
        """Whether this scaler does anything."""
        return self._enabled

    def get_scale(self) -> float:
        """The scale; 1.0 if not enabled."""
        return self._value if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by when it grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set what the scale is multiplied by when it grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by after a step that was skipped."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set what the scale is multiplied by after a step that was skipped."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Steps in a row, none skipped, after which the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many steps in a row, none skipped, the scale grows."""
        self._growth_interval = new_interval

    # Saving ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The scale and its rule, as torch's; empty if not enabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._value,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a ``state_dict()``, from this library or from torch."""
        if not self._enabled:
            return
        if not state_dict:
            raise InvalidOperation(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        value = state_dict["scale"]
        if self._scale is None:
            self._value = value
        else:
            self._set(value)
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = state_dict["_growth_tracker"]

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._optimizers:
                raise InvalidChoice(
                    "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
                    "scaler.update()."
                )
            state["_scale"] = None
        return state


def _as_scale(new_scale: Any) -> float:
    """A scale that the user sets, as a number."""
    if isinstance(new_scale, float):
        return new_scale
    if not hasattr(new_scale, "_cell") or new_scale.numel() != 1 or new_scale.requires_grad:
        raise InvalidChoice(
            "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
            "requires_grad=False."
        )
    return float(new_scale.item())
