"""The instructions of a registered function without control flow: ops, constants, indexing, other functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import InvalidFunction, InvalidOperation, LimitExceeded, ShapeMismatch, UnknownFunction
from ...schema.op import CATALOGUE, Op
from ...schema.parameters import DTypeKind
from ...shapes import Spec
from ...tensor.abstract import KINDS, Meta, prepare
from ...tensor.call_cache import calling
from ...tensor.conversion import as_array
from ...tensor.eager import upload
from ..json_codec import from_lists
from ..members import Members
from ..overloads import find_op
from ..verbs import VERBS
from .blocks import Scope, Step
from .expressions import has_expressions, parse
from .limits import MAX_CONSTANT
from .reader import STEPS, Item, Reader, step

if TYPE_CHECKING:
    from .function import Applicable

ATTRS = Members("apply", ("function", "attrs"), VERBS["apply"].deprecated)
WRITES_TO_INPUT = "a registered function cannot modify its inputs in place; clone them first"


class OpStep(Step):
    """An op of the catalogue, or its in-place form."""

    __slots__ = ("again", "attrs", "found", "inputs", "writes")

    def __init__(self, item: Item) -> None:
        super().__init__(item.op, item.outputs, item.path)
        self.inputs = item.inputs
        self.again: Any = None
        """The op on abstract tensors with cached calls, which the SDK makes in every step of a loop."""
        attrs = {name: item.attr(name) for name in item.attrs}
        dynamic = any(map(has_expressions, attrs.values()))
        count = len(item.inputs)
        if dynamic:
            # The overload is chosen, and the values are checked, when the values are known.
            found, self.writes = find_op(item.op)
            self.found: Op | None = None
            self.attrs: Mapping[str, Any] = attrs
            known = {p.name for op in CATALOGUE.overloads.get(found.name, [found]) for p in op.attr_params}
            if unknown := attrs.keys() - known:
                raise InvalidFunction(f"{item.op} has no attribute {min(unknown)!r:.60}")
        else:
            self.found, self.writes = find_op(item.op, count, attrs)
            self.attrs = self.found.check_attrs(attrs)
            _check_count(self.found, count)
            if not self.writes:
                self.again = calling(self.found, self.attrs, Meta._apply, prepare, KINDS)
            outputs = 1 if self.writes else math.inf if self.found.lists_outputs else len(self.found.outputs)
            if len(item.outputs) > outputs:
                raise InvalidFunction(f"{item.op} has {outputs} outputs, but {len(item.outputs)} names were given")

    def run(self, scope: Scope) -> Sequence[Any]:
        """Apply the op."""
        inputs = scope.value(self.inputs)
        if self.again is not None and scope.apply is Meta._apply:
            return self._results(self.again(*inputs))
        op, attrs = self.found, self.attrs
        if op is None:
            attrs = {name: scope.number(value) for name, value in attrs.items()}
            op = find_op(self.op, len(inputs), attrs)[0]
            attrs = op.check_attrs(attrs)
        arguments = op.check_inputs(inputs, self.writes)
        if self.writes:
            check_writable(arguments[0], scope)
            arguments[0]._inplace(op, arguments, attrs)
            return [arguments[0]]
        return self._results(scope.apply(op, arguments, attrs))

    def _results(self, result: Any) -> Sequence[Any]:
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        if len(results) < len(self.outputs):
            raise InvalidOperation(f"{self.op} has {len(results)} outputs, but {len(self.outputs)} names were given")
        return results


def _check_count(op: Op, count: int) -> None:
    """Raise unless an op takes this number of inputs, as :meth:`Signature.check_inputs` requires."""
    op.check_inputs([_Anything()] * min(count, len(op.tensor_params)) + [None] * (count - len(op.tensor_params)))


class _Anything(tuple[Any, ...]):
    """Accepted as a tensor and as an empty list of tensors."""

    _data = None


def check_writable(tensor: Any, scope: Scope) -> None:
    """Raise InvalidOperation for a write to the memory of the function's own inputs, which belongs to the caller."""
    if any(tensor._version_counter is cell for cell in scope.frozen):
        raise InvalidOperation(WRITES_TO_INPUT)


@step("op")
def read_op(reader: Reader, item: Item) -> Step:
    """Read an op: an instruction that has no reader of its own."""
    if item.op in VERBS:
        raise InvalidFunction(
            "it is no instruction of a function; those are ops and " + ", ".join(STEPS.keys() - {"op"})
        )
    return OpStep(item)


class Detach(Step):
    """Detach a tensor from the graph."""

    __slots__ = ("input",)
    input: str

    def run(self, scope: Scope) -> Sequence[Any]:
        """Detach."""
        return [scope.value(self.input).detach()]


@step("detach")
def read_detach(reader: Reader, item: Item) -> Step:
    """``{"op": "detach", "inputs": ["x"], "outputs": ["y"]}``."""
    item.expect(inputs=(1,))
    found = Detach(item.op, item.outputs, item.path)
    (found.input,) = item.names(item.inputs)
    return found


class Constant(Step):
    """A small tensor whose values are in the definition."""

    __slots__ = ("array",)
    array: Any

    def run(self, scope: Scope) -> Sequence[Any]:
        """Return a new tensor of the same kind as the scope's tensors."""
        if scope.apply is Meta._apply:
            return [Meta(Spec(self.array.shape, self.array.dtype))]
        return [upload(self.array.copy())]


@step("tensor")
def read_tensor(reader: Reader, item: Item) -> Step:
    """``{"op": "tensor", "outputs": ["c"], "attrs": {"data": [1.0, 2.0], "dtype": "float64"}}``."""
    item.expect(inputs=(0,), attrs=("data", "dtype"))
    if "data" not in item.attrs:
        raise InvalidFunction("tensor needs data")
    dtype = item.attrs.get("dtype")
    found = Constant(item.op, item.outputs, item.path)
    found.array = as_array(from_lists(item.attrs["data"]), None if dtype is None else DTypeKind().parse(dtype))
    if found.array.size > MAX_CONSTANT:
        raise LimitExceeded(f"a constant has at most {MAX_CONSTANT} numbers, this one has {found.array.size}")
    return found


class Index(Step):
    """``x[…]``, or with a value ``x[…] = value``, with Python's index expressions."""

    __slots__ = ("index", "input", "value", "writes")
    index: tuple[Any, ...]
    input: str
    value: Any

    def run(self, scope: Scope) -> Sequence[Any]:
        """Read, or write in place."""
        tensor = scope.value(self.input)
        index = tuple([self._item(i, scope) for i in self.index])
        if not self.writes:
            return [tensor[index[0] if len(index) == 1 else index]]
        check_writable(tensor, scope)
        value = scope.value(self.value)
        if len(index) == 1 and _is_mask(index[0]) and (not hasattr(value, "_data") or not value._data.shape):
            # Like masked_fill, so that the shapes are known even if the values are not.
            tensor.masked_fill_(_aligned(index[0], tensor), value)
        else:
            tensor[index] = value
        return [tensor]

    def _item(self, item: Any, scope: Scope) -> Any:
        if isinstance(item, str):
            return Ellipsis if item == "..." else scope.value(item)
        if type(item) is tuple:
            return slice(*[scope.number(v) for v in item[1:]])
        return scope.number(item)


def _is_mask(value: Any) -> bool:
    return hasattr(value, "_data") and value._data.dtype == bool


def _aligned(mask: Any, tensor: Any) -> Any:
    """Return a mask over the first dimensions of ``tensor`` with the missing dimensions added."""
    shape, whole = tuple(mask._data.shape), tuple(tensor._data.shape)
    if shape != whole[: len(shape)]:
        raise ShapeMismatch(f"The shape of the mask {list(shape)} does not match the indexed tensor {list(whole)}")
    return mask.reshape((*shape, *(1,) * (len(whole) - len(shape)))) if len(shape) < len(whole) else mask


@step("index_get")
def read_index_get(reader: Reader, item: Item) -> Step:
    """``{"op": "index_get", "inputs": ["x"], "outputs": ["y"], "attrs": {"index": [0, ["slice", 1, null, null]]}}``."""
    item.expect(inputs=(1,), attrs=("index",))
    return _read_index(item, None)


@step("index_set")
def read_index_set(reader: Reader, item: Item) -> Step:
    """``{"op": "index_set", "inputs": ["x", 0], "outputs": ["y"], "attrs": {"index": ["mask"]}}``."""
    item.expect(inputs=(2,), attrs=("index",), outputs=(0, 1))
    return _read_index(item, item.inputs[1])


def _read_index(item: Item, value: Any) -> Step:
    found = Index(item.op, item.outputs, item.path)
    found.writes = item.op == "index_set"
    (found.input,) = item.names(item.inputs[:1])
    found.value = value
    index = item.attr("index")
    if not isinstance(index, tuple) or not index:
        raise InvalidFunction('index is a list of numbers, null, "...", ["slice", start, stop, step] and tensors')
    for part in index:
        if isinstance(part, str) and part != "..." and part not in item.known.tensors:
            raise InvalidFunction(f"there is no tensor {part!r:.60} before this instruction")
        if type(part) is tuple and (len(part) != 4 or part[0] != "slice"):
            raise InvalidFunction('a slice is ["slice", start, stop, step]')
    found.index = index
    return found


class Apply(Step):
    """Apply another registered function, as it was when this one was registered."""

    __slots__ = ("function", "inputs", "parameters")
    function: Applicable
    inputs: tuple[str, ...]
    parameters: dict[str, Any]

    def run(self, scope: Scope) -> Sequence[Any]:
        """Call it, within this call's budget."""
        parameters = {name: scope.number(value) for name, value in self.parameters.items()}
        return self.function.call(scope.value(self.inputs), parameters, scope.budget)


@step("apply")
def read_apply(reader: Reader, item: Item) -> Step:
    """``{"op": "apply", "inputs": [["x"]], "outputs": ["y"], "attrs": {"function": "other", "attrs": {"k": 3}}}``."""
    attrs = ATTRS.of(item.attrs, InvalidFunction)
    item.expect(inputs=(1,), attrs=item.attrs, outputs=range(1, 1000))
    name = attrs.get("function")
    if not isinstance(name, str):
        raise InvalidFunction("apply needs function, a name")
    found = Apply(item.op, item.outputs, item.path)
    found.inputs = item.names(item.inputs[0])
    try:
        found.function = function = reader.find(name)
    except UnknownFunction as error:
        hint = "a function applies those that were registered before it, never itself"
        raise InvalidFunction(f"{error}; {hint}") from None
    found.size = function.size
    reader.reach(function.levels)
    own = attrs.get("attrs", {})
    if not isinstance(own, Mapping):
        raise InvalidFunction("attrs is an object")
    found.parameters = {name: parse(value, item.known) for name, value in own.items()}
    if len(found.inputs) != function.inputs:
        raise InvalidFunction(f"{name} takes {function.inputs} tensors, not {len(found.inputs)}")
    if unknown := own.keys() - {p.name for p in function.signature.attr_params}:
        raise InvalidFunction(f"{name} has no attribute {min(unknown)!r:.60}")
    return found
