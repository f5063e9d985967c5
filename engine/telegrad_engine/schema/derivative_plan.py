"""Derivative plans: the values that a node saves and the rules that backward evaluates.

There is one plan per op and set of inputs that require grad. The parameter names of a derivative name the values that
it needs; a plan lists these values and the rules that take them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import GradRequired
from .signature import parameter_names

Rule = Callable[..., Any]


class Save(NamedTuple):
    """The source of a saved value when the op is recorded."""

    source: str  # "input", "output", "hidden", "attr", "shape" or "dtype"
    key: Any  # a position, or an attribute's name


class DerivativeStep(NamedTuple):
    """One derivative to evaluate: the edges that it computes gradients for and the saved values that it takes."""

    edges: tuple[int, ...]
    rule: Rule
    arguments: tuple[int, ...]
    many: bool  # the rule returns a sequence with one gradient per edge


class DerivativePlan(NamedTuple):
    """The values to save and the rules to evaluate when a given set of inputs requires grad."""

    saves: tuple[Save, ...]
    steps: tuple[DerivativeStep, ...]
    holds_tensors: bool  # whether freeing the graph drops a saved tensor
    saves_self: bool  # whether it saves input 0, so in-place ops must copy it
    direct: tuple[tuple[int, Rule, int, tuple[int, ...]], ...] | None
    """The steps as edge, rule, number of arguments and arguments, if each computes one gradient."""


def plan_derivative(op: Any, needs: tuple[Any, ...]) -> DerivativePlan:
    """Make the plan for the inputs flagged in ``needs``: a bool per tensor parameter, a tuple of bools for a list."""
    saves: dict[Save, int] = {}
    steps: list[DerivativeStep] = []
    edge = 0
    all_edges: list[int] = []
    for param, need in zip(op.tensor_params, needs, strict=True):
        width = len(need) if isinstance(need, tuple) else 1
        edges = tuple(range(edge, edge + width))
        edge += width
        all_edges.extend(edges)
        wanted = any(need) if isinstance(need, tuple) else need
        if wanted and op.rules and param.name not in op.rules:
            raise GradRequired(
                f"The function '{op.name}' is not differentiable with respect to argument '{param.name}'. "
                "This input cannot have requires_grad True."
            )
        if wanted and op.joint_rule is None:
            rule = op.rules[param.name]
            steps.append(DerivativeStep(edges, rule, _arguments(op, rule, 2, saves), param.is_list))
    if op.joint_rule is not None:
        rule, joint_needs = op.joint_rule, needs
        steps = [
            DerivativeStep(
                tuple(all_edges),
                lambda F, grad, *saved: rule(F, grad, joint_needs, *saved),
                _arguments(op, rule, 3, saves),
                True,
            )
        ]
    # The fast path handles neither rules for several edges nor edges that may carry no gradient.
    plain = op.nondifferentiable_inputs is None and not any(s.many for s in steps)
    return DerivativePlan(
        tuple(saves),
        tuple(steps),
        any(s.source in ("input", "output", "hidden") for s in saves),
        Save("input", 0) in saves,
        tuple((s.edges[0], s.rule, len(s.arguments), s.arguments) for s in steps) if plain else None,
    )


def _arguments(op: Any, rule: Rule, skip: int, saves: dict[Save, int]) -> tuple[int, ...]:
    names = parameter_names(rule)[skip:]
    return tuple(saves.setdefault(_source(op, name), len(saves)) for name in names)


def _source(op: Any, name: str) -> Save:
    tensor_names = [p.name for p in op.tensor_params]
    if name in tensor_names:
        return Save("input", tensor_names.index(name))
    if name in op.outputs:
        return Save("output", op.outputs.index(name))
    if name in op.hidden:
        return Save("hidden", op.hidden.index(name))
    if name in op.positions:
        return Save("attr", name)
    base, _, fact = name.rpartition("_")
    if base in tensor_names and fact in ("shape", "dtype"):
        return Save(fact, tensor_names.index(base))
    raise TypeError(f"{op.key}: a derivative asks for {name!r}, which the op does not have")
