"""Overload resolution: find the op of an instruction by its name and, among overloads, by its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidArgument
from ..schema.op import CATALOGUE, NO_ATTRS, Op, unknown_op
from ..schema.signature import REQUIRED
from .verbs import VERBS


def find_op(name: str, inputs: int | None = None, attrs: Mapping[str, Any] = NO_ATTRS) -> tuple[Op, bool]:
    """Return the op of an instruction, and whether its in-place form (with a trailing ``_``) is meant.

    If overloads share the name, return the first that takes this number of ``inputs`` and these ``attrs``; if
    ``inputs`` is None, the one whose key is the name. Raises UnknownOp, and InvalidArgument if no overload matches.
    """
    op = _public(name)
    family: Sequence[Op] = CATALOGUE.overloads.get(name, ())
    in_place = False
    if op is None and not family and name.endswith("_"):
        in_place = True
        op = _public(name[:-1])
        op = op if op is not None and op.inplace else None
        family = [other for other in CATALOGUE.overloads.get(name[:-1], ()) if other.inplace]
    if len(family) > 1 and inputs is not None:
        return _overload(name, family, inputs, attrs), in_place
    if op is None and family:
        op = family[0]
    if op is None:
        raise unknown_op(name, {**{op.key: op for op in CATALOGUE if not op.private}, **VERBS})
    return op, in_place


def _public(key: str) -> Op | None:
    """Return the op with this key; None if there is none, or it is private."""
    op = CATALOGUE.ops.get(key)
    return None if op is None or op.private else op


def _overload(name: str, family: Sequence[Op], inputs: int, attrs: Mapping[str, Any]) -> Op:
    fitting = [op for op in family if _takes(op, inputs, attrs)]
    for op in fitting[:-1]:
        try:
            op.check_attrs(attrs)
        except InvalidArgument:
            continue
        return op
    if fitting:
        return fitting[-1]
    got = ", ".join([f"{inputs} input{'s' * (inputs != 1)}", *map(repr, attrs)])
    expected = "".join(f"\n * {op.signature.removeprefix(op.name)}" for op in family)
    raise InvalidArgument(
        f"{name}() received an invalid combination of arguments - got ({got}), but expected one of:{expected}"
    )


def _takes(op: Op, inputs: int, attrs: Mapping[str, Any]) -> bool:
    """Return whether an op takes this number of inputs and attributes of these names."""
    required = sum(p.default is REQUIRED for p in op.tensor_params)
    needed = {p.name for p in op.attr_params if p.default is REQUIRED}
    known = {p.name for p in op.attr_params}
    return required <= inputs <= len(op.tensor_params) and needed <= set(attrs) <= known
