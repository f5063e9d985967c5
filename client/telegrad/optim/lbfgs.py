"""L-BFGS: Nocedal and Wright 2006, algorithm 7.5, with or without a line search.

The algorithm branches on values after every evaluation, so it is written in ops instead of one instruction. The
directions stay in the session, and only numbers are fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from telegrad_engine.context import enable_grad, no_grad
from telegrad_engine.errors import InvalidOperation, InvalidValue

from ..tensor.handle import Tensor, functions, recorder_of
from .line_search import Trial, strong_wolfe
from .optimizer import Optimizer
from .options import options_in

LEAST_CURVATURE = 1e-10
"""The minimum curvature of a remembered pair of differences; below it, the direction would not descend."""


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last ``history_size`` changes of parameters and gradients.

    ``step`` takes a closure that computes the gradients and returns the loss, and calls it up to ``max_eval``
    times in ``max_iter`` iterations. ``line_search_fn`` is None or "strong_wolfe". One group of parameters only.
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
