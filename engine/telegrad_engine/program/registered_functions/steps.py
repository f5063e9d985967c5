"""The instructions of a registered function: each is declared by a function that checks it and returns what runs it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...context import state
from ...errors import (
    DataDependentShape,
    InvalidFunction,
    InvalidOperation,
    LimitExceeded,
    ShapeMismatch,
    UnknownFunction,
)
from ...graph.node import next_sequence
from ...schema.op import CATALOGUE, Op
from ...schema.parameters import DTypeKind
from ...shapes import Spec
from ...tensor.abstract import KINDS, Meta, functions, prepare
from ...tensor.call_cache import op_function
from ...tensor.conversion import as_array
from ...tensor.eager import upload
from ..instructions import Members
from ..json_codec import from_lists
from ..overloads import find_op
from ..verbs import VERBS
from .blocks import Block, Run, Scope, has_expressions
from .limits import MAX_CONSTANT, MAX_ITERATIONS
from .reader import STEPS, Item, is_tensor_output, step

APPLY = Members("apply", ("function", "attrs"), {"params": "attrs"})
WRITES_TO_INPUT = "a registered function cannot modify its inputs in place; clone them first"

# Ops, constants and indexing -----------------------------------------------------------------------


@step
def op(item: Item) -> Run:
    """An op of the catalogue, or its in-place form: any instruction that is not declared here."""
    name, outputs, inputs, count = item.op, len(item.outputs), item.inputs, len(item.inputs)
    if name in VERBS:
        known = ", ".join(STEPS.keys() - {"op"})
        raise InvalidFunction(f"it is no instruction of a function; those are ops and {known}")
    attrs: Mapping[str, Any] = {name: item.parse(value) for name, value in item.attrs.items()}
    found: Op | None = None
    again: Any = None  # the op on abstract tensors with cached calls, which the SDK makes in every step of a loop
    if any(map(has_expressions, attrs.values())):
        # The overload is chosen, and the values are checked, when the values are known.
        some, item.writes = find_op(name)
        family = CATALOGUE.overloads.get(some.name, [some])
        item.check_attrs(attrs, {p.name for op in family for p in op.attr_params}, name)
    else:
        found, item.writes = find_op(name, count, attrs)
        attrs = found.check_attrs(attrs)
        takes = len(found.tensor_params)
        found.check_inputs([_Anything()] * min(count, takes) + [None] * (count - takes))  # only how many there are
        if not item.writes:
            again = op_function(found, attrs, Meta._apply, prepare, KINDS)
        most = 1 if item.writes else math.inf if found.lists_outputs else len(found.outputs)
        if outputs > most:
            raise InvalidFunction(f"{name} has {most} outputs, but {outputs} names were given")
    writes = item.writes

    def results(result: Any) -> Sequence[Any]:
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        if len(results) < outputs:
            raise InvalidOperation(f"{name} has {len(results)} outputs, but {outputs} names were given")
        return results

    def run(scope: Scope) -> Sequence[Any]:
        values = scope.value(inputs)
        if again is not None and scope.apply is Meta._apply:
            return results(again(*values))
        op, given = found, attrs
        if op is None:
            given = {name: scope.number(value) for name, value in attrs.items()}
            op = find_op(name, count, given)[0]
            given = op.check_attrs(given)
        arguments = op.check_inputs(values, writes)
        if not writes:
            return results(scope.apply(op, arguments, given))
        _check_writable(arguments[0], scope)
        arguments[0]._inplace(op, arguments, given)
        return [arguments[0]]

    return run


class _Anything(tuple[Any, ...]):
    """Accepted as a tensor and as an empty list of tensors."""

    _data = None


def _check_writable(tensor: Any, scope: Scope) -> None:
    """Raise InvalidOperation for a write to the memory of the function's own inputs, which belongs to the caller."""
    if any(tensor._version_counter is cell for cell in scope.frozen):
        raise InvalidOperation(WRITES_TO_INPUT)


@step
def detach(item: Item) -> Run:
    """``{"op": "detach", "inputs": ["x"], "outputs": ["y"]}``."""
    item.expect(inputs=(1,))
    (name,) = item.names(item.inputs)
    return lambda scope: [scope.value(name).detach()]


@step
def tensor(item: Item) -> Run:
    """A small constant: ``{"op": "tensor", "outputs": ["c"], "attrs": {"data": [1.0, 2.0], "dtype": "float64"}}``."""
    item.expect(inputs=(0,), attrs=("data", "dtype"))
    if "data" not in item.attrs:
        raise InvalidFunction("tensor needs data")
    dtype = item.attrs.get("dtype")
    array = as_array(from_lists(item.attrs["data"]), None if dtype is None else DTypeKind().parse(dtype))
    if array.size > MAX_CONSTANT:
        raise LimitExceeded(f"a constant has at most {MAX_CONSTANT} numbers, this one has {array.size}")
    spec = Spec(array.shape, array.dtype)
    return lambda scope: [Meta(spec) if scope.apply is Meta._apply else upload(array.copy())]


@step
def index_get(item: Item) -> Run:
    """``{"op": "index_get", "inputs": ["x"], "outputs": ["y"], "attrs": {"index": [0, ["slice", 1, null, null]]}}``."""
    item.expect(inputs=(1,), attrs=("index",))
    (name,), parts = item.names(item.inputs), _parse_index(item)

    def run(scope: Scope) -> Sequence[Any]:
        tensor, index = scope.value(name), _index(parts, scope)
        return [tensor[index[0] if len(index) == 1 else index]]

    return run


@step
def index_set(item: Item) -> Run:
    """``{"op": "index_set", "inputs": ["x", 0], "outputs": ["y"], "attrs": {"index": ["mask"]}}``."""
    item.expect(inputs=(2,), attrs=("index",), outputs=(0, 1))
    (name,), given, parts = item.names(item.inputs[:1]), item.inputs[1], _parse_index(item)
    item.writes = True

    def run(scope: Scope) -> Sequence[Any]:
        tensor, index = scope.value(name), _index(parts, scope)
        _check_writable(tensor, scope)
        value = scope.value(given)
        mask = getattr(index[0], "_data", None) if len(index) == 1 else None
        if mask is not None and mask.dtype == bool and (not hasattr(value, "_data") or not value._data.shape):
            # Like masked_fill, so that the shapes are known even if the values are not.
            tensor.masked_fill_(_aligned(index[0], tensor), value)
        else:
            tensor[index] = value
        return [tensor]

    return run


def _parse_index(item: Item) -> tuple[Any, ...]:
    """Return the index: Python's index expressions, with ``["slice", start, stop, step]`` and names of tensors."""
    index = item.parse(item.attrs.get("index"))
    if not isinstance(index, tuple) or not index:
        raise InvalidFunction('index is a list of numbers, null, "...", ["slice", start, stop, step] and tensors')
    for part in index:
        if isinstance(part, str) and part != "...":
            item.check_known(part)
        if type(part) is tuple and (len(part) != 4 or part[0] != "slice"):
            raise InvalidFunction('a slice is ["slice", start, stop, step]')
    return index


def _index(parts: Sequence[Any], scope: Scope) -> tuple[Any, ...]:
    """Return an index with the values of its expressions and tensors."""
    found = [
        slice(*map(scope.number, p[1:])) if type(p) is tuple else Ellipsis if p == "..." else scope.value(p)
        for p in parts
    ]
    return tuple(found)


def _aligned(mask: Any, tensor: Any) -> Any:
    """Return a mask over the first dimensions of ``tensor`` with the missing dimensions added."""
    shape, whole = tuple(mask._data.shape), tuple(tensor._data.shape)
    if shape != whole[: len(shape)]:
        raise ShapeMismatch(f"The shape of the mask {list(shape)} does not match the indexed tensor {list(whole)}")
    return mask.reshape((*shape, *(1,) * (len(whole) - len(shape)))) if len(shape) < len(whole) else mask


# Other functions -----------------------------------------------------------------------------------


@step
def apply(item: Item) -> Run:
    """``{"op": "apply", "inputs": [["x"]], "outputs": ["y"], "attrs": {"function": "other", "attrs": {"k": 3}}}``.

    Apply another registered function, as it is now, within the budget of the call.
    """
    attrs = APPLY.of(item.attrs, InvalidFunction)
    item.expect(inputs=(1,), attrs=item.attrs, outputs=range(1, 1000))
    name = attrs.get("function")
    if not isinstance(name, str):
        raise InvalidFunction("apply needs function, a name")
    inputs = item.names(item.inputs[0])
    try:
        function = item.reader.function(name)
    except UnknownFunction as error:
        hint = "a function applies those that were registered before it, never itself"
        raise InvalidFunction(f"{error}; {hint}") from None
    item.size = function.size
    own = attrs.get("attrs", {})
    if not isinstance(own, Mapping):
        raise InvalidFunction("attrs is an object")
    parsed = {name: item.parse(value) for name, value in own.items()}
    if len(inputs) != function.inputs:
        raise InvalidFunction(f"{name} takes {function.inputs} tensors, not {len(inputs)}")
    item.check_attrs(own, [p.name for p in function.signature.attr_params], name)

    def run(scope: Scope) -> Sequence[Any]:
        parameters = {name: scope.number(value) for name, value in parsed.items()}
        results: Sequence[Any] = function.call(scope.value(inputs), parameters, scope.call.budget)
        return results

    return run


# Control flow --------------------------------------------------------------------------------------


@step
def cond(item: Item) -> Run:
    """``{"op": "cond", "inputs": ["p"], "outputs": ["y"], "attrs": {"then": {…}, "else": {…}}}``.

    Run one of two programs, chosen by a tensor of one element or an expression; run both if the predicate is an
    abstract tensor without a known value.
    """
    item.expect(inputs=(1,), attrs=("then", "else"), outputs=range(1000))
    (given,) = item.inputs
    blocks = [item.block(name, inputs=False) for name in ("then", "else")]
    for block in blocks:
        _expect_outputs(item, block, len(item.outputs), exactly=False)

    def run(scope: Scope) -> Sequence[Any]:
        predicate = scope.value(given)
        answer = scope.call.budget.decide(predicate)
        if answer is not None:
            return blocks[0 if answer else 1].run_inside(scope)
        begun = next_sequence()
        chosen, other = [block.run_inside(scope) for block in blocks]
        _expect_alike(scope, chosen, other, begun)
        return [_either(predicate, a, b) for a, b in zip(chosen, other, strict=True)]

    return run


def _expect_alike(scope: Scope, these: Sequence[Any], those: Sequence[Any], begun: int) -> None:
    """Raise DataDependentShape if the results differ in shape, in dtype or, if the caller needs it, in history."""
    for a, b in zip(these, those, strict=True):
        if a._data.shape != b._data.shape or a._data.dtype != b._data.dtype:
            raise DataDependentShape("shapes or dtypes depend on the value that a cond or a while_loop asks for")
        if scope.call.budget.asking and state.grad_enabled and _origins(a, begun) != _origins(b, begun):
            raise DataDependentShape("which tensors get gradients depends on the value that is asked for")


def _origins(tensor: Any, begun: int) -> set[int]:
    """Return the identities of the nodes and leaves from before ``begun`` that a tensor's history leads to."""
    found, waiting = set[int](), [tensor._node] if tensor._requires_grad else []
    seen = set[int]()
    while waiting:
        place = waiting.pop()
        if place is None or id(place) in seen:
            continue
        seen.add(id(place))
        if place.leaf is not None or place.sequence < begun:
            found.add(id(place))
        else:
            waiting.extend(place.next_edges)
    return found


def _either(predicate: Meta, a: Any, b: Any) -> Any:
    """Return an abstract tensor for ``a`` or ``b``, whose history leads to both."""
    if state.grad_enabled and (a._requires_grad or b._requires_grad):
        return functions.where(functions.ne(functions.reshape(predicate, ()), 0), a, b)
    return a


@step
def while_loop(item: Item) -> Run:
    """``{"op": "while_loop", "inputs": [["x"]], "outputs": ["y"], "attrs": {"cond": {…}, "body": {…}}}``.

    Repeat a program while another one returns true; run it once if the predicate is an abstract tensor without a known
    value.
    """
    item.expect(inputs=(1,), attrs=("cond", "body", "max_iterations"), outputs=range(1, 1000))
    names = item.names(item.inputs[0])
    condition, body = [item.block(name) for name in ("cond", "body")]
    most = item.attrs.get("max_iterations", MAX_ITERATIONS)
    if type(most) is not int or not 0 < most <= MAX_ITERATIONS:
        raise LimitExceeded(f"max_iterations is a number from 1 to {MAX_ITERATIONS}")
    _expect_inputs(item, condition, len(names))
    _expect_inputs(item, body, len(names))
    if len(condition.outputs) != 1 or condition.outputs[0] is None:
        raise InvalidFunction("the cond of a while_loop has one output, whether it goes on")
    _expect_outputs(item, body, len(names))

    def run(scope: Scope) -> Sequence[Any]:
        carried = list(scope.value(names))
        for _ in range(most):
            (predicate,) = condition.run_inside(scope, carried)
            goes_on = scope.call.budget.decide(predicate)
            if goes_on is None:
                begun = next_sequence()
                after = body.run_inside(scope, carried)
                _expect_alike(scope, carried, after, begun)
                return after
            if not goes_on:
                return carried
            carried = body.run_inside(scope, carried)
        raise LimitExceeded(f"a while_loop did not end after {most} iterations")

    return run


@step
def scan(item: Item) -> Run:
    """``{"op": "scan", "inputs": [["h"], ["xs"]], "outputs": ["last", "hs"], "attrs": {"body": {…}}}``.

    Run a program once for each slice of some tensors along their first dimension, passing others from run to run.
    Return the carried tensors after the last run, and the stacked further outputs of all runs.
    """
    item.expect(inputs=(2,), attrs=("body",), outputs=range(1, 1000))
    names, over = [item.names(x) for x in item.inputs]
    if not over:
        raise InvalidFunction("scan needs a tensor to run over")
    body = item.block("body")
    _expect_inputs(item, body, len(names) + len(over))
    if len(body.outputs) < len(names):
        raise InvalidFunction(f"the body of a scan has at least {len(names)} outputs, those that it carries")
    _expect_outputs(item, body, len(item.outputs), exactly=False)

    def run(scope: Scope) -> Sequence[Any]:
        carried, sequences = list(scope.value(names)), scope.value(over)
        if len({s.shape[0] if s.dim() else None for s in sequences} - {None}) != 1:
            raise InvalidOperation("the sequences of a scan have one length, in their first dimension")
        length = sequences[0].shape[0]
        if not 0 < length <= MAX_ITERATIONS:
            raise LimitExceeded(f"a scan runs over 1 to {MAX_ITERATIONS} slices, not {length}")
        rows: list[list[Any]] = []
        for index in range(length):
            results = body.run_inside(scope, [*carried, *[s.select(0, index) for s in sequences]])
            carried, row = results[: len(carried)], results[len(carried) :]
            rows.append(row)
        stack = CATALOGUE.get("stack")
        return [*carried, *[scope.apply(stack, (column,), {}) for column in zip(*rows, strict=True)]]

    return run


@step
def require(item: Item) -> Run:
    """``{"op": "require", "inputs": [{"eq": [{"ndim": "x"}, 2]}], "attrs": {"message": "x is a matrix"}}``.

    Raise InvalidOperation unless an expression is true.
    """
    item.expect(inputs=(1,), attrs=("message",), outputs=(0,))
    (predicate,) = item.inputs
    if isinstance(predicate, str):
        raise InvalidFunction("require takes an expression, not a tensor")
    message = str(item.attrs.get("message", "a registered function was called with what it does not take"))

    def run(scope: Scope) -> Sequence[Any]:
        if not scope.number(predicate):
            raise InvalidOperation(message)
        return []

    return run


def _expect_inputs(item: Item, block: Block, count: int) -> None:
    if len(block.inputs) != count:
        raise InvalidFunction(f"a program of this {item.op} has {count} inputs, not {len(block.inputs)}")


def _expect_outputs(item: Item, block: Block, count: int, exactly: bool = True) -> None:
    """Raise InvalidFunction unless a program has ``count`` outputs, or at least ``count``, and all are tensors."""
    if not all(map(is_tensor_output, block.outputs)):
        raise InvalidFunction(f"the outputs of a program of {item.op} are tensors")
    if len(block.outputs) < count or (exactly and len(block.outputs) != count):
        raise InvalidFunction(f"a program of this {item.op} has {count} outputs, not {len(block.outputs)}")
