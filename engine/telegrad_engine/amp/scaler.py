"""``GradScaler``: scale losses up so that float16 gradients do not underflow, and scale the gradients back down.

It uses only tensor methods and the :class:`Steps` protocol, so it serves the optimizers of both the engine and the SDK.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Protocol

import numpy as np

from .. import dtypes
from ..context import no_grad
from ..errors import InvalidChoice, InvalidOperation, InvalidValue


class Steps(Protocol):
    """The optimizer interface that a scaler uses: ``param_groups`` and ``step``.

    An optimizer may also have ``step_if(condition)``, which leaves the decision to the session so that nothing waits
    for the condition's value. It returns whether that was possible.
    """

    param_groups: list[dict[str, Any]]

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Update the parameters from their gradients."""


class _Stage(Enum):
    READY, UNSCALED, STEPPED = range(3)


class _Progress:
    """The progress of one optimizer within an iteration."""

    def __init__(self) -> None:
        self.stage = _Stage.READY
        self.finite: Any = None
        """Whether all gradients are finite, as a bool tensor; None until the gradients are checked."""


class GradScaler:
    """Dynamic loss scaling: ``scale(loss).backward()``, ``step(optimizer)``, ``update()``.

    A step whose gradients contain an infinity or a NaN is skipped, and the scale is multiplied by ``backoff_factor``;
    after ``growth_interval`` consecutive steps without one it is multiplied by ``growth_factor``. If ``enabled`` is
    False, the scaler does nothing. Misuse raises torch's errors.

    ``device`` is accepted as in torch; ``init_scale`` is the first scale.

    Examples:
        >>> scaler = tg.GradScaler("cpu", init_scale=4.0)
        >>> w = tg.tensor([1.0], requires_grad=True)
        >>> optimizer = tg.optim.SGD([w], lr=0.5)
        >>> scaler.scale(w.sum()).backward()
        >>> scaler.step(optimizer)
        >>> scaler.update()
        >>> w.detach(), scaler.get_scale()
        (tensor([0.5000]), 4.0)
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
        self._init_scale: float = init_scale
        self._init_growth_tracker = 0
        self._scale: Any = None
        """The scale, a float32 tensor on the outputs' device; created by the first ``scale``, as is the tracker."""
        self._growth_tracker: Any = None
        """The number of consecutive steps that were not skipped, an int32 tensor."""
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._optimizers: dict[int, _Progress] = {}

    # Iteration ---------------------------------------------------------------------------

    def scale(self, outputs: Any) -> Any:
        """Multiply a tensor, or the tensors of an iterable, by the scale."""
        if not self._enabled:
            return outputs
        if hasattr(outputs, "_version_counter"):
            if self._scale is None:
                self._scale = outputs.new_tensor(self._init_scale, dtype=dtypes.float32)
                self._growth_tracker = outputs.new_tensor(self._init_growth_tracker, dtype=dtypes.int32)
            return outputs * self._scale
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(output) for output in outputs)
        if isinstance(outputs, Iterable):
            return map(self.scale, outputs)
        raise InvalidValue("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Steps) -> None:
        """Divide the gradients of the optimizer's parameters by the scale in place, for example to clip them."""
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
        inverse = self._scale.reciprocal()
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
        """Unscale the gradients and return ``optimizer.step()``, or skip the step if a gradient is not finite."""
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
        result, step_if = None, getattr(optimizer, "step_if", None)
        deferred = step_if is not None and not args and not kwargs and step_if(progress.finite)
        if not deferred and bool(progress.finite):
            result = optimizer.step(*args, **kwargs)
        progress.stage = _Stage.STEPPED
        return result

    def update(self, new_scale: Any = None) -> None:
        """End the iteration: adapt the scale to the finite checks, or set it to a number or a one-element tensor."""
        if not self._enabled:
            return
        self._check_scaled("update")
        if new_scale is not None:
            self._set(_as_scale(new_scale))
        else:
            looked = [p.finite for p in self._optimizers.values() if p.finite is not None]
            if not looked:
                raise InvalidChoice("No inf checks were recorded prior to update.")
            self._adapt(functools.reduce(lambda a, b: a.logical_and(b), looked))
        self._optimizers = {}

    @no_grad()
    def _adapt(self, finite: Any) -> None:
        """Adapt the scale by the rule of Micikevicius et al. 2018, section 3.2; it never grows beyond float32.

        Everything is computed on tensors, so that nothing waits for the value of ``finite``.
        """
        grown, steps = self._times(self._growth_factor), self._growth_tracker + 1
        is_due = steps.eq(self._growth_interval)
        kept = grown.where(is_due.logical_and(grown.isfinite()), self._scale)
        self._scale = kept.where(finite, self._times(self._backoff_factor))
        self._growth_tracker = steps.masked_fill(is_due.logical_or(finite.logical_not()), 0)

    def _times(self, factor: float) -> Any:
        """The scale times a factor, rounded once."""
        if float(np.float32(factor)) == factor:
            return self._scale * factor
        return (self._scale.double() * factor).float()

    def _set(self, value: float) -> None:
        self._scale = self._scale.new_tensor(value, dtype=dtypes.float32)

    def _check_scaled(self, what: str) -> None:
        if self._scale is None:
            raise InvalidChoice(
                f"Attempted {what} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )

    def _progress(self, optimizer: Steps) -> _Progress:
        return self._optimizers.setdefault(id(optimizer), _Progress())

    # Getters and setters -----------------------------------------------------------------

    def is_enabled(self) -> bool:
        """Whether this scaler is enabled."""
        return self._enabled

    def get_scale(self) -> float:
        """The scale; 1.0 if not enabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """The factor that the scale is multiplied by when it grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor that the scale is multiplied by when it grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor that the scale is multiplied by after a skipped step."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor that the scale is multiplied by after a skipped step."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """The number of consecutive steps, none skipped, after which the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the number of consecutive steps, none skipped, after which the scale grows."""
        self._growth_interval = new_interval

    # State -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state in torch's format: scale, factors, interval and growth tracker; empty if not enabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._tracked(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a ``state_dict()`` from this library or from torch."""
        if not self._enabled:
            return
        if not state_dict:
            raise InvalidOperation(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._scale is not None:
            self._set(self._init_scale)
            self._growth_tracker = self._scale.new_tensor(self._init_growth_tracker, dtype=dtypes.int32)

    def _tracked(self) -> int:
        """The number of consecutive steps that were not skipped."""
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker.item())

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._optimizers:
                raise InvalidChoice(
                    "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
                    "scaler.update()."
                )
            state |= {"_init_scale": self.get_scale(), "_init_growth_tracker": self._tracked()}
            state["_scale"] = state["_growth_tracker"] = None
        return state


def _as_scale(new_scale: Any) -> float:
    """A user-supplied scale as a float."""
    if isinstance(new_scale, float):
        return new_scale
    if not hasattr(new_scale, "_version_counter") or new_scale.numel() != 1 or new_scale.requires_grad:
        raise InvalidChoice(
            "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
            "requires_grad=False."
        )
    return float(new_scale.item())
