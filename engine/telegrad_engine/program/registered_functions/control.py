"""The control-flow instructions of a registered function: ``cond``, ``while_loop``, ``scan`` and ``require``.

Their programs are in ``attrs`` and may read the tensors of the enclosing program; the names that they define are local.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...context import state
from ...errors import DataDependentShape, InvalidFunction, InvalidOperation, LimitExceeded
from ...graph.node import next_sequence
from ...schema.op import CATALOGUE
from ...tensor.abstract import Meta, functions
from .blocks import Block, Scope, Step
from .limits import MAX_ITERATIONS
from .reader import Item, Reader, is_tensor_output, step


class Cond(Step):
    """Run one of two programs, chosen by a tensor of one element or an expression."""

    __slots__ = ("blocks", "predicate")
    predicate: Any
    blocks: list[Block]

    def run(self, scope: Scope) -> Sequence[Any]:
        """Run the chosen branch; run both if the predicate is an abstract tensor without a known value."""
        predicate = scope.value(self.predicate)
        answer = scope.budget.decide(predicate)
        if answer is not None:
            return self.blocks[0 if answer else 1].run_inside(scope)
        begun = next_sequence()
        chosen, other = [block.run_inside(scope) for block in self.blocks]
        _expect_alike(scope, chosen, other, begun)
        return [_either(predicate, a, b) for a, b in zip(chosen, other, strict=True)]


def _expect_alike(scope: Scope, these: Sequence[Any], those: Sequence[Any], begun: int) -> None:
    """Raise DataDependentShape if the results differ in shape, in dtype or, if the caller needs it, in history."""
    for a, b in zip(these, those, strict=True):
        if a._data.shape != b._data.shape or a._data.dtype != b._data.dtype:
            raise DataDependentShape("shapes or dtypes depend on the value that a cond or a while_loop asks for")
        if scope.budget.asking and state.grad_enabled and _origins(a, begun) != _origins(b, begun):
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


@step("cond")
def read_cond(reader: Reader, item: Item) -> Step:
    """``{"op": "cond", "inputs": ["p"], "outputs": ["y"], "attrs": {"then": {…}, "else": {…}}}``."""
    item.expect(inputs=(1,), attrs=("then", "else"), outputs=range(1000))
    found = Cond(item.op, item.outputs, item.path)
    (found.predicate,) = item.inputs
    found.blocks = [_block(reader, item, name, inputs=False) for name in ("then", "else")]
    for block in found.blocks:
        _expect_outputs(item, block, len(item.outputs), exactly=False)
    found.size += sum(block.size for block in found.blocks)
    return found


class While(Step):
    """Repeat a program while another one returns true."""

    __slots__ = ("body", "carried", "condition", "most")
    carried: tuple[str, ...]
    condition: Block
    body: Block
    most: int

    def run(self, scope: Scope) -> Sequence[Any]:
        """Repeat the body; run it once if the predicate is an abstract tensor without a known value."""
        carried = list(scope.value(self.carried))
        for _ in range(self.most):
            (predicate,) = self.condition.run_inside(scope, carried)
            goes_on = scope.budget.decide(predicate)
            if goes_on is None:
                return self._once(scope, carried)
            if not goes_on:
                return carried
            carried = self.body.run_inside(scope, carried)
        raise LimitExceeded(f"a while_loop did not end after {self.most} iterations")

    def _once(self, scope: Scope, carried: list[Any]) -> list[Any]:
        begun = next_sequence()
        after = self.body.run_inside(scope, carried)
        _expect_alike(scope, carried, after, begun)
        return after


@step("while_loop")
def read_while(reader: Reader, item: Item) -> Step:
    """``{"op": "while_loop", "inputs": [["x"]], "outputs": ["y"], "attrs": {"cond": {…}, "body": {…}}}``."""
    item.expect(inputs=(1,), attrs=("cond", "body", "max_iterations"), outputs=range(1, 1000))
    found = While(item.op, item.outputs, item.path)
    found.carried = item.names(item.inputs[0])
    found.condition, found.body = [_block(reader, item, name) for name in ("cond", "body")]
    found.most = item.attrs.get("max_iterations", MAX_ITERATIONS)
    if type(found.most) is not int or not 0 < found.most <= MAX_ITERATIONS:
        raise LimitExceeded(f"max_iterations is a number from 1 to {MAX_ITERATIONS}")
    _expect_inputs(item, found.condition, len(found.carried))
    _expect_inputs(item, found.body, len(found.carried))
    if len(found.condition.outputs) != 1 or found.condition.outputs[0] is None:
        raise InvalidFunction("the cond of a while_loop has one output, whether it goes on")
    _expect_outputs(item, found.body, len(found.carried))
    found.size += found.condition.size + found.body.size
    return found


class Scan(Step):
    """Run a program once for each slice of some tensors along their first dimension, passing others from run to run."""

    __slots__ = ("body", "carried", "sequences")
    carried: tuple[str, ...]
    sequences: tuple[str, ...]
    body: Block

    def run(self, scope: Scope) -> Sequence[Any]:
        """Return the carried tensors after the last run, and the stacked further outputs of all runs."""
        carried, sequences = list(scope.value(self.carried)), scope.value(self.sequences)
        if len({s.shape[0] if s.dim() else None for s in sequences} - {None}) != 1:
            raise InvalidOperation("the sequences of a scan have one length, in their first dimension")
        length = sequences[0].shape[0]
        if not 0 < length <= MAX_ITERATIONS:
            raise LimitExceeded(f"a scan runs over 1 to {MAX_ITERATIONS} slices, not {length}")
        rows: list[list[Any]] = []
        for index in range(length):
            results = self.body.run_inside(scope, [*carried, *[s.select(0, index) for s in sequences]])
            carried, row = results[: len(carried)], results[len(carried) :]
            rows.append(row)
        stack = [_stack(scope, column) for column in zip(*rows, strict=True)]
        return [*carried, *stack]


def _stack(scope: Scope, column: tuple[Any, ...]) -> Any:
    return scope.apply(CATALOGUE.get("stack"), (column,), {})


@step("scan")
def read_scan(reader: Reader, item: Item) -> Step:
    """``{"op": "scan", "inputs": [["h"], ["xs"]], "outputs": ["last", "hs"], "attrs": {"body": {…}}}``."""
    item.expect(inputs=(2,), attrs=("body",), outputs=range(1, 1000))
    found = Scan(item.op, item.outputs, item.path)
    found.carried, found.sequences = [item.names(x) for x in item.inputs]
    if not found.sequences:
        raise InvalidFunction("scan needs a tensor to run over")
    found.body = _block(reader, item, "body")
    _expect_inputs(item, found.body, len(found.carried) + len(found.sequences))
    if len(found.body.outputs) < len(found.carried):
        raise InvalidFunction(f"the body of a scan has at least {len(found.carried)} outputs, those that it carries")
    _expect_outputs(item, found.body, len(item.outputs), exactly=False)
    found.size += found.body.size
    return found


class Require(Step):
    """Fail unless an expression is true."""

    __slots__ = ("message", "predicate")
    message: str
    predicate: Any

    def run(self, scope: Scope) -> Sequence[Any]:
        """Raise InvalidOperation unless it is true."""
        if not scope.number(self.predicate):
            raise InvalidOperation(self.message)
        return []


@step("require")
def read_require(reader: Reader, item: Item) -> Step:
    """``{"op": "require", "inputs": [{"eq": [{"ndim": "x"}, 2]}], "attrs": {"message": "x is a matrix"}}``."""
    item.expect(inputs=(1,), attrs=("message",), outputs=(0,))
    found = Require(item.op, item.outputs, item.path)
    (found.predicate,) = item.inputs
    if isinstance(found.predicate, str):
        raise InvalidFunction("require takes an expression, not a tensor")
    found.message = str(item.attrs.get("message", "a registered function was called with what it does not take"))
    return found


def _block(reader: Reader, item: Item, name: str, inputs: bool = True) -> Block:
    if name not in item.attrs:
        raise InvalidFunction(f"{item.op} needs {name}, a program")
    return reader.block(item.attrs[name], f"{item.path}.{name}", item.known.tensors, inputs)


def _expect_inputs(item: Item, block: Block, count: int) -> None:
    if len(block.inputs) != count:
        raise InvalidFunction(f"a program of this {item.op} has {count} inputs, not {len(block.inputs)}")


def _expect_outputs(item: Item, block: Block, count: int, exactly: bool = True) -> None:
    """Raise InvalidFunction unless a program has ``count`` outputs, or at least ``count``, and all are tensors."""
    if not all(map(is_tensor_output, block.outputs)):
        raise InvalidFunction(f"the outputs of a program of {item.op} are tensors")
    if len(block.outputs) < count or (exactly and len(block.outputs) != count):
        raise InvalidFunction(f"a program of this {item.op} has {count} outputs, not {len(block.outputs)}")
