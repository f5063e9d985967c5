"""L-BFGS: Nocedal and Wright 2006, algorithm 7.5, with or without a line search.

The algorithm branches on values after every evaluation, so it is written in ops instead of one instruction. The
directions stay in the session, and only numbers are fetched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from telegrad_engine.context import enable_grad, no_grad
from telegrad_engine.errors import InvalidOperation, InvalidValue

from ..tensor.handle import Tensor, functions, recorder_of
from .optimizer import Optimizer, options_in

LEAST_CURVATURE = 1e-10
"""The minimum curvature of a remembered pair of differences; below it, the direction would not descend."""


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last ``history_size`` changes of parameters and gradients.

    ``step`` takes a closure that computes the gradients and returns the loss, and calls it up to ``max_eval``
    times in ``max_iter`` iterations. ``line_search_fn`` is None or "strong_wolfe". One group of parameters only.

    Args:
        params: The parameters, or dicts of parameters (``params``) and options of their own.
        lr: The factor of a step.
        max_iter: The largest number of iterations in a step.
        max_eval: The largest number of evaluations in a step; None is 1.25 times ``max_iter``.
        tolerance_grad: The gradient's largest element at which a step ends.
        tolerance_change: The change of parameters or loss at which a step ends.
        history_size: The number of changes that are kept.
        line_search_fn: None or "strong_wolfe".

    Examples:
        >>> w = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = tg.optim.LBFGS([w])
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = (w * w).sum()
        ...     loss.backward()
        ...     return loss
        >>> _ = optimizer.step(closure)
        >>> bool(w.abs().max() < 1e-5)
        True
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        super().__init__(params, options_in(locals()))
        if len(self.param_groups) != 1:
            raise InvalidValue("LBFGS doesn't support per-parameter options (parameter groups)")

    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Iterate until a limit or tolerance is reached, and return the loss before the first step."""
        if closure is None:
            raise TypeError("LBFGS.step() missing 1 required positional argument: 'closure'")
        evaluate = enable_grad()(closure)
        group = self.param_groups[0]
        state = self.state[group["params"][0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        first_loss = evaluate()
        grad = self._flat_grad()
        loss, steepest = numbers(first_loss, grad.abs().max())
        evaluations = 1
        state["func_evals"] += 1
        if steepest <= group["tolerance_grad"]:
            return first_loss

        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = self._direction(state, grad, group["history_size"])
            total, slope = numbers(grad.abs().sum(), grad.dot(direction))
            t = (min(1.0, 1.0 / total) if state["n_iter"] == 1 else 1.0) * group["lr"]
            before = loss
            state.update(d=direction, t=t, prev_flat_grad=grad, prev_loss=before)
            if slope > -group["tolerance_change"]:
                break
            count = 0
            if group["line_search_fn"] is not None:
                start = Trial(0.0, loss, grad, slope)
                point, count = self._search(evaluate, start, direction, t, group["max_eval"] - evaluations)
                t, loss, grad = point.t, point.loss, point.grad
                state["t"] = t
                self._move(t, direction)
                steepest, farthest = numbers(grad.abs().max(), direction.abs().max())
            else:
                self._move(t, direction)
                if iteration < group["max_iter"]:
                    result = evaluate()
                    grad = self._flat_grad()
                    loss, steepest, farthest = numbers(result, grad.abs().max(), direction.abs().max())
                    count = 1
            evaluations += count
            state["func_evals"] += count
            if (
                iteration == group["max_iter"]
                or evaluations >= group["max_eval"]
                or steepest <= group["tolerance_grad"]
                or farthest * t <= group["tolerance_change"]
                or abs(loss - before) < group["tolerance_change"]
            ):
                break
        return first_loss

    def _direction(self, state: dict[str, Any], grad: Tensor, history_size: int) -> Tensor:
        """The negative gradient times the approximate inverse Hessian, which is first updated with the last change."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return -grad
        changes, steps, inverses = state["old_dirs"], state["old_stps"], state["ro"]
        change, step = grad - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = change.dot(step)
        if curvature.item() > LEAST_CURVATURE:
            if len(changes) == history_size:
                for remembered in (changes, steps, inverses):
                    remembered.pop(0)
            changes.append(change)
            steps.append(step)
            inverses.append(1.0 / curvature)
            state["H_diag"] = curvature / change.dot(change)
        direction: Tensor = grad.neg()
        weights = state.setdefault("al", [None] * history_size)
        for i in reversed(range(len(changes))):
            weights[i] = steps[i].dot(direction) * inverses[i]
            direction = direction - changes[i] * weights[i]
        direction = direction * state["H_diag"]
        for change, step, inverse, weight in zip(changes, steps, inverses, weights, strict=False):
            direction = direction + step * (weight - change.dot(direction) * inverse)
        return direction

    def _search(
        self, closure: Callable[[], Any], start: Trial, direction: Tensor, t: float, limit: int
    ) -> tuple[Trial, int]:
        """Search for a point along ``direction``, and reset the parameters to the start."""
        group = self.param_groups[0]
        if group["line_search_fn"] != "strong_wolfe":
            raise InvalidOperation("only 'strong_wolfe' is supported")
        origin = [p.detach().clone() for p in group["params"]]

        def evaluate(t: float) -> Trial:
            self._move(t, direction)
            result = closure()
            grad = self._flat_grad()
            for param, value in zip(group["params"], origin, strict=True):
                param.copy_(value)
            loss, slope = numbers(result, grad.dot(direction))
            return Trial(t, loss, grad, slope)

        (reach,) = numbers(direction.abs().max())
        # As in torch, the group's tolerance applies to the iterations, not to the search.
        return strong_wolfe(evaluate, start, t, reach, 1e-9, limit)

    def _flat_grad(self) -> Tensor:
        """The gradients of all parameters as one vector, with zeros for missing gradients."""
        params = self.param_groups[0]["params"]
        parts = [p.new_zeros(p.numel()) if p.grad is None else p.grad.detach().reshape(-1) for p in params]
        return functions.cat(parts)

    def _move(self, t: float, direction: Tensor) -> None:
        """Add ``t`` times the direction to the parameters."""
        params = self.param_groups[0]["params"]
        for param, part in zip(params, direction.split([p.numel() for p in params]), strict=True):
            param.add_(part.reshape(param.shape), alpha=t)


def numbers(*values: Any) -> list[float]:
    """Return the values of one-element tensors, fetched with one message; numbers are returned as floats."""
    tensors = [v for v in values if isinstance(v, Tensor)]
    fetched = recorder_of(tensors).fetch([t._id for t in tensors]) if tensors else {}
    return [float(fetched[v._id].array.item()) if isinstance(v, Tensor) else float(v) for v in values]


# A step length that satisfies the strong Wolfe conditions: Nocedal and Wright 2006, algorithms 3.5 and 3.6. Where the
# book leaves a choice, the trial steps are PyTorch's, so that the iterates are the same.

DECREASE, CURVATURE = 1e-4, 0.9
"""The constants c1 and c2 of the conditions."""


class Trial(NamedTuple):
    """A point on the line: its distance, the loss, the gradient, and the slope along the line."""

    t: float
    loss: float
    grad: Tensor
    slope: float


Evaluate = Callable[[float], Trial]


def strong_wolfe(
    evaluate: Evaluate, start: Trial, t: float, reach: float, tolerance: float, limit: int
) -> tuple[Trial, int]:
    """Return the chosen point on the line from ``start``, whose ``t`` is 0, and the number of calls of ``evaluate``.

    The first trial is ``t``; at most ``limit`` others follow. ``reach`` is the largest element of the direction: steps
    whose elements differ by less than ``tolerance`` count as equal.
    """
    previous, trial = start, evaluate(t)
    tried = 0
    bracket = None
    while tried < limit and bracket is None:
        if _too_high(trial, start) or (tried > 1 and trial.loss >= previous.loss):
            bracket = [previous, trial]
        elif _flat_enough(trial, start):
            return trial, tried + 1
        elif trial.slope >= 0:
            bracket = [previous, trial]
        else:
            bounds = trial.t + 0.01 * (trial.t - previous.t), trial.t * 10
            following = _minimum(previous, trial, bounds)
            previous, trial = trial, evaluate(following)
            tried += 1
    return _zoom(evaluate, start, bracket or [start, trial], reach, tolerance, tried, limit)


def _zoom(
    evaluate: Evaluate, start: Trial, bracket: list[Trial], reach: float, tolerance: float, tried: int, limit: int
) -> tuple[Trial, int]:
    """Narrow the bracket down to a point that satisfies the conditions, or to the best one found."""
    low, high = _order(bracket)
    stuck = False
    while tried < limit and abs(bracket[1].t - bracket[0].t) * reach >= tolerance:
        ends = sorted(b.t for b in bracket)
        t, stuck = _away_from_ends(_minimum(bracket[0], bracket[1], (ends[0], ends[1])), ends[0], ends[1], stuck)
        trial = evaluate(t)
        tried += 1
        if _too_high(trial, start) or trial.loss >= bracket[low].loss:
            bracket[high] = trial
            low, high = _order(bracket)
            continue
        done = _flat_enough(trial, start)
        if not done and trial.slope * (bracket[high].t - bracket[low].t) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = trial
        if done:
            break
    return bracket[low], tried + 1


def _too_high(trial: Trial, start: Trial) -> bool:
    return trial.loss > start.loss + DECREASE * trial.t * start.slope


def _flat_enough(trial: Trial, start: Trial) -> bool:
    return abs(trial.slope) <= -CURVATURE * start.slope


def _order(bracket: list[Trial]) -> tuple[int, int]:
    """The indices of the bracket's ends, that with the lower loss first."""
    return (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)


def _away_from_ends(t: float, lowest: float, highest: float, stuck: bool) -> tuple[float, bool]:
    """Return ``t``, moved inwards if it is close to an end for the second time, and whether it is the first time."""
    margin = 0.1 * (highest - lowest)
    if min(highest - t, t - lowest) >= margin:
        return t, False
    if not (stuck or t >= highest or t <= lowest):
        return t, True
    return (highest - margin if abs(t - highest) < abs(t - lowest) else lowest + margin), False


def _minimum(a: Trial, b: Trial, bounds: tuple[float, float]) -> float:
    """The minimum, within bounds, of the cubic with the two points' losses and slopes: equation 3.59."""
    lowest, highest = bounds
    a, b = (a, b) if a.t <= b.t else (b, a)
    middle = (lowest + highest) / 2.0
    try:
        d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
        square = d1 * d1 - a.slope * b.slope
        if not square >= 0:
            return middle
        d2 = math.sqrt(square)
        t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    except ZeroDivisionError:
        return middle
    return min(max(t, lowest), highest)
