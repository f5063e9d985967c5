"""A step length that satisfies the strong Wolfe conditions: Nocedal and Wright 2006, algorithms 3.5 and 3.6.

Where the book leaves a choice, the trial steps are PyTorch's, so that the iterates are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ..tensor.handle import Tensor

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
