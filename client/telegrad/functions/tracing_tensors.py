"""Tensors without values that record operations on them in a tracer.

A traced tensor's shape is a symbol, so that the program works for all shapes. If the code is traced on an example,
``meta`` has the tensor's shape and dtype there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from telegrad_engine.dtypes import from_numpy
from telegrad_engine.errors import InvalidOperation, NeedsExample
from telegrad_engine.schema.op import NO_ATTRS, Op
from telegrad_engine.tensor.abstract import Meta

from ..tensor.handle import Tensor
from .tracing_symbols import UNKNOWN, Symbol, here, to_json


class Unknown(Exception):
    """Raised when a symbol has no hint."""


def is_known(value: Any) -> bool:
    """Whether a tensor's shape and dtype, or a symbol's value, are known."""
    if isinstance(value, (list, tuple)):
        return all(map(is_known, value))
    if isinstance(value, Symbol):
        return value.hint is not UNKNOWN
    return type(value) is not Traced or value.meta is not None


def hints(value: Any) -> Any:
    """Return stand-ins for traced tensors, and the example's values for symbols."""
    if isinstance(value, (list, tuple)):
        return tuple([hints(v) for v in value])
    if isinstance(value, Symbol):
        if value.hint is UNKNOWN:
            raise Unknown
        return value.hint
    if type(value) is Traced:
        return value.meta
    return Meta(value._data) if isinstance(value, Tensor) else value


def hinted(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Replace symbols in attributes by the example's values."""
    return {name: hints(value) if _has_symbol(value) else value for name, value in attrs.items()}


def _has_symbol(value: Any) -> bool:
    return isinstance(value, Symbol) or (isinstance(value, (list, tuple)) and any(map(_has_symbol, value)))


def encode(op: Op, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Encode attributes as in a definition."""
    plain = op.encode_attrs({name: value for name, value in attrs.items() if not _has_symbol(value)})
    return {name: to_json(plain.get(name, value)) for name, value in attrs.items()}


class Traced(Tensor):
    """A tensor of the program that is being traced."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Traced:
        """Create the object only: a traced tensor belongs to no session."""
        return object.__new__(cls)

    def __init__(self, tracer: Any, name: str, meta: Meta | None) -> None:
        self._recorder = tracer
        self._id = name
        self._version_counter = [0]
        self.meta = meta
        if meta is not None:
            tracer.metas[name] = meta

    @property
    def _data(self) -> Any:
        return _Unseen() if self.meta is None else _Seen(self)

    def __repr__(self) -> str:
        return f"<traced tensor {self._id}>"

    def pin(self) -> None:
        """Restrict the trace to the example's shape of this tensor."""
        if self.meta is not None:
            self._recorder.guards[json.dumps({"shape": self._id})] = list(self.meta._data.shape)  # type: ignore[attr-defined]

    def _symbol(self, expression: Any, hint: Any) -> Any:
        return Symbol(self._recorder, expression, UNKNOWN if self.meta is None else hint(self.meta))

    @property
    def shape(self) -> Any:
        """The shape, known only in a call."""
        return self._symbol({"shape": self._id}, lambda meta: tuple(meta.shape))

    @property
    def dtype(self) -> Any:
        """The dtype, known only in a call."""
        return self._symbol({"dtype": self._id}, lambda meta: meta.dtype)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """The number of dimensions, known only with an example; every trace on an example depends on it."""
        return len(self._data.shape) if self.meta is None else self.meta.dim()

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.dim()

    def is_floating_point(self) -> bool:
        """Whether the dtype is floating, according to the example."""
        return from_numpy(self._data.dtype).is_floating_point

    def numel(self) -> Any:
        """The number of elements, known only in a call."""
        return self._symbol({"numel": self._id}, lambda meta: meta.numel())

    def __len__(self) -> int:
        return int(self.shape[0])

    # Values ------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        tracer: Any = self._recorder
        answer: bool = tracer.decide(self._id)
        return answer

    def _fetch(self) -> Any:
        raise self._recorder.refuse_value("this")  # type: ignore[attr-defined]

    def numpy(self, *, force: bool = False) -> Any:
        """Raise InvalidOperation: a traced tensor has no value."""
        raise self._recorder.refuse_value("numpy()")  # type: ignore[attr-defined]

    def item(self) -> Any:
        """Raise InvalidOperation: a traced tensor has no value."""
        raise self._recorder.refuse_value("item()")  # type: ignore[attr-defined]

    def __index__(self) -> int:
        raise self._recorder.refuse_value("a conversion to int")  # type: ignore[attr-defined]

    def __format__(self, spec: str) -> str:
        return repr(self)

    # Recording ---------------------------------------------------------------------------

    def _inplace(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
        tracer: Any = self._recorder
        tracer.check_writable(self)
        tracer.write(f"{op.key}_", inputs, (), encode(op, attrs))
        return self

    def detach(self) -> Any:
        """Return a tensor outside the graph."""
        tracer: Any = self._recorder
        made = Traced(tracer, tracer.new_id(), self.meta)
        tracer.write("detach", [self], [made._id], {})
        return made

    def __getitem__(self, index: Any) -> Any:
        tracer: Any = self._recorder
        metas = tracer.evaluate(lambda: hints(self)[hints(index)], (self, index))
        made = Traced(tracer, tracer.new_id(), None if metas is None else metas[0])
        tracer.write("index_get", [self], [made._id], {"index": _index(tracer, index)})
        return made

    def __setitem__(self, index: Any, value: Any) -> None:
        tracer: Any = self._recorder
        tracer.check_writable(self)
        tracer.write("index_set", [self, value], (), {"index": _index(tracer, index)})


class _Unseen:
    """The ``_data`` of a traced tensor without an example: reading its shape or dtype raises NeedsExample."""

    def _refuse(self) -> Any:
        raise NeedsExample(
            f"{here()}: the shape or the dtype of a tensor is asked for, and is known only in a call. "
            "Give an example of the inputs: register_function(name, example=(…,))"
        )

    shape = dtype = ndim = size = property(_refuse)


class _Seen:
    """A traced tensor's shape and dtype in the example; reading either adds a guard to the trace."""

    def __init__(self, tensor: Traced) -> None:
        self._tensor = tensor

    @property
    def shape(self) -> Any:
        """The example's shape."""
        self._tensor.pin()
        return self._tensor.meta._data.shape  # type: ignore[union-attr]

    @property
    def dtype(self) -> Any:
        """The example's dtype."""
        meta: Any = self._tensor.meta
        self._tensor._recorder.guards[json.dumps({"dtype": self._tensor._id})] = meta.dtype.name  # type: ignore[attr-defined]
        return meta._data.dtype


def _index(tracer: Any, index: Any) -> list[Any]:
    """An index expression in the form that definitions use."""
    items = index if isinstance(index, tuple) else (index,)
    return [_item(tracer, item) for item in items]


def _item(tracer: Any, item: Any) -> Any:
    if item is Ellipsis:
        return "..."
    if isinstance(item, slice):
        return ["slice", to_json(item.start), to_json(item.stop), to_json(item.step)]
    if isinstance(item, Tensor):
        return tracer._ref(item)
    if item is None or isinstance(item, (bool, int)):
        return to_json(item)
    raise InvalidOperation(
        f"{here()}: a traced index has numbers, slices, None, ... and tensors, not {type(item).__name__}"
    )
