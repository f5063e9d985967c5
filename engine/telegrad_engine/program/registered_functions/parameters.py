"""The parameters of a registered function: its arguments besides tensors, each with a type and an optional default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InvalidFunction, LimitExceeded, TelegradError
from ...schema.parameters import BoolKind, DTypeKind, IntKind, IntsKind, Kind, ListKind, NumberKind, StrKind, TensorKind
from ...schema.signature import REQUIRED, Param, Signature
from ..instructions import ID_PATTERN, check_id
from ..members import Members
from .limits import MAX_TENSORS

TYPES: Mapping[str, Kind] = {
    "number": NumberKind(),
    "int": IntKind(),
    "bool": BoolKind(),
    "str": StrKind(),
    "ints": IntsKind(),
    "list": ListKind(),
    "dtype": DTypeKind(),
}
"""The types of parameters, by their names in a definition."""
ATTR = Members("an attribute", ("name", "type", "default"), {})
TENSOR = TensorKind()


def parse_parameters(data: Any) -> tuple[Param, ...]:
    """Parse the parameters of a definition. Raises InvalidFunction or LimitExceeded."""
    if not isinstance(data, (list, tuple)):
        raise InvalidFunction("attrs is a list of objects")
    if len(data) > MAX_TENSORS:
        raise LimitExceeded(f"a function has at most {MAX_TENSORS} attributes, not {len(data)}")
    found = tuple(map(_parse, data))
    if len({p.name for p in found}) < len(found):
        raise InvalidFunction("two attributes have the same name")
    return found


def _parse(data: Any) -> Param:
    if not isinstance(data, Mapping) or "name" not in data:
        raise InvalidFunction('an attribute is {"name": …, "type": …, "default": …}; only the name is required')
    ATTR.of(data, InvalidFunction)
    name = name_of(data["name"])
    kind = TYPES.get(data.get("type", "number")) if isinstance(data.get("type", "number"), str) else None
    if kind is None:
        raise InvalidFunction(f"attribute {name!r} has type {data['type']!r:.60}; known: {', '.join(TYPES)}")
    default = data.get("default", REQUIRED)
    if default is not REQUIRED and default is not None:
        try:
            default = kind.parse(default)
        except (TypeError, TelegradError):
            raise InvalidFunction(f"the default of attribute {name!r} is no {data.get('type', 'number')}") from None
    return Param(name, kind, default, False)


def name_of(value: Any) -> str:
    """Return a value that is a valid name of a tensor or a parameter. Raises InvalidFunction for any other."""
    try:
        return check_id(value)
    except TelegradError:
        raise InvalidFunction(f"not a name: {value!r:.60}; a name matches {ID_PATTERN}") from None


def signature(name: str, inputs: Sequence[str], parameters: Sequence[Param], order: Any) -> Signature:
    """Return the signature of a call: tensors and parameters in ``order``, by default all tensors first."""
    by_name = {n: Param(n, TENSOR, REQUIRED, False) for n in inputs}
    if shared := by_name.keys() & {p.name for p in parameters}:
        raise InvalidFunction(f"{min(shared)!r} is both an input and an attribute")
    by_name |= {p.name: p for p in parameters}
    if order is None:
        return Signature(name, tuple(by_name.values()))
    if not isinstance(order, (list, tuple)) or sorted(map(str, order)) != sorted(by_name):
        raise InvalidFunction("order lists each input and each attribute once")
    return Signature(name, tuple(by_name[n] for n in order))
