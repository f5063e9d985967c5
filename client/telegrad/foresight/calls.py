"""The call of an op as a loop makes it again: how it is told to be the same, and what there is left to do then."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

from telegrad_engine.functions import Resolve
from telegrad_engine.inference import mark
from telegrad_engine.meta import Produce, hidden_specs, view_of, without_values
from telegrad_engine.modes import observers, state
from telegrad_engine.repeated import Call as Repeated
from telegrad_engine.repeated import Enter, Resolved, entering, gathered, promised
from telegrad_engine.specs import Spec

from ..value_checks import check
from .drawing import Draw
from .numbers import Numbers, OwnNumbers, numbers_of

Kind = tuple[Any, ...]
"""Shape, dtype and whether a gradient is wanted: these of its tensors, and its constants, settle a call's outcome."""
Make = Callable[[Any, Spec, str], Any]
"""Gives an output of a recorder's its handle, of this id."""
Going = Callable[[Sequence[Any], Mapping[str, Any], Any, Any, Any], Any]
"""Of arguments, a recorder, its round and the step that is due: a call's result, recorded; None if it is another."""
CONSTANT = -1
"""What stands for an argument that is no tensor, among places."""


class Results(NamedTuple):
    """How a call's results are made again, of tensors like its own."""

    make: Callable[[Any, Sequence[Any], Sequence[str]], Any]
    """Makes them, for a recorder, of tensors, and with ids."""
    plain: tuple[Make, Spec, Enter | None] | None
    """What that comes to where there is one result, which is no view and may have a history."""
    draw: Draw | None
    """How it is entered into the graph later on, if it can be."""
    verify: Callable[[Sequence[Any]], None] | None
    """Raises what the op will raise for the values of such tensors, as far as they are known here."""
    call: Repeated
    """The call, without its tensors."""
    numbers: Numbers
    """Those that a call may have others in place of."""
    anew: Callable[[Repeated], Results]
    """What this is for another call."""


class Call:
    """A call that recorded an instruction, where there were so many places (``width``)."""

    __slots__ = ("checks", "constants", "depth", "draw", "front", "go_on", "grad", "names", "numbers", "places")

    def __init__(
        self,
        front: Callable[..., Any],
        names: tuple[str, ...],
        places: tuple[int, ...],
        constants: tuple[Any, ...],
        checks: tuple[tuple[int, Kind], ...],
        grad: bool,
        results: Results,
        resolve: Resolve,
        depth: int,
        width: int,
        kinds: Container[type[Any]],
    ) -> None:
        self.front = front
        """What was called."""
        self.names = names
        """Of the arguments that were given by name: the last ones."""
        self.places, self.constants = places, constants
        """The arguments: of a tensor its place; of anything else CONSTANT, and what it is."""
        self.checks = checks
        """The arguments of which it is not known what kind of tensor they are, and what kind they have to be."""
        self.grad = grad
        self.depth = depth
        """How far up the stack the user's line is."""
        self.draw, self.numbers = results.draw, results.numbers
        settled = not names and not checks and all(CONSTANT < place < width for place in places)
        if settled and len(places) <= 2 and results.plain is not None:
            self.go_on = _quickly(places, grad, results.plain, results.verify, kinds)
        else:
            self.go_on = _going(self, results, resolve, kinds)

    @property
    def facts(self) -> tuple[Any, ...]:
        """What tells it from other calls."""
        fixed = self.numbers.template if self.numbers.operands else repr(self.constants)
        return self.front, self.names, self.places, fixed, self.checks, self.grad


def placed(name: str, places: dict[str, int]) -> int:
    """The place of an id; the next one, if it is new."""
    return places.setdefault(name, len(places))


def kind_of(tensor: Any) -> Kind | None:
    """What a call's outcome depends on of a tensor; None for a view whose history has to be rebuilt."""
    if tensor._base is not None and tensor._seen != tensor._cell[0]:
        return None
    data = tensor._data
    return data.shape, data.dtype, tensor._requires_grad


def _going(call: Call, results: Results, resolve: Resolve, kinds: Container[type[Any]]) -> Going:
    """What goes on with calls like this one."""
    make, draw, verify = results.make, results.draw, results.verify
    names, own, constants, checks, grad = call.names, call.places, call.constants, call.checks, call.grad

    def go_on(args: Sequence[Any], kwargs: Mapping[str, Any], recorder: Any, ahead: Any, step: Any) -> Any:
        given = args
        if kwargs or names:
            if tuple(kwargs) != names:
                return None
            given = (*args, *kwargs.values())
        if len(given) != len(own) or state.grad_enabled is not grad:
            return None
        tensors: list[Any] = []
        same = True
        for x, place, constant in zip(given, own, constants, strict=True):
            if place != CONSTANT:
                if type(x) not in kinds or x._recorder is not recorder or placed(x._id, ahead.places) != place:
                    return None
                tensors.append(x)
            elif x is not constant and (type(x) is not type(constant) or repr(x) != repr(constant)):
                same = False
        for position, kind in checks:
            if kind_of(given[position]) != kind:
                return None
        if not same:
            return _with_numbers(results, resolve(args, kwargs), tensors, recorder, ahead, step)
        if verify is not None:
            verify(tensors)
        made = [recorder.new_id() for _ in step.outputs]
        for name in made:
            placed(name, ahead.places)
        ahead.last, ahead.next = step, step.next
        if draw is not None:
            drawing = ahead.drawing_at(step, tensors)
            if drawing is not None:
                output = draw.make(recorder, draw.spec, made[0])
                if draw.as_view is not None:
                    draw.as_view(tensors, output, None)
                drawing.add(output)
                return output
        return make(recorder, tensors, made)

    return go_on


def _with_numbers(
    results: Results, resolved: Resolved | None, tensors: Sequence[Any], recorder: Any, ahead: Any, step: Any
) -> Any:
    """Go on with a call that has other numbers; None if more than these is another."""
    if resolved is None or not results.numbers.operands:
        return None
    op, inputs, attrs = resolved
    template, operands = numbers_of(op.key, inputs, attrs)
    if op is not results.call.op or template != results.numbers.template:
        return None
    if _facts(promised(op, inputs, attrs)) != _facts(results.call.specs):
        return None  # a slice that goes beyond the end, say
    check(op, inputs, attrs)
    blank = [None if hasattr(x, "_data") else x for x in inputs]
    changed = OwnNumbers(blank, attrs, operands)
    made = [recorder.new_id() for _ in step.outputs]
    for name in made:
        placed(name, ahead.places)
    ahead.changed[step.index] = changed
    ahead.last, ahead.next = step, step.next
    draw = results.draw
    drawing = None if draw is None else ahead.drawing_at(step, tensors)
    if draw is None or drawing is None:
        return results.anew(results.call._replace(inputs=inputs, attrs=attrs)).make(recorder, tensors, made)
    output = draw.make(recorder, draw.spec, made[0])
    if draw.as_view is not None:
        draw.as_view(tensors, output, changed)
    drawing.add(output)
    return output


def _facts(specs: Sequence[Spec] | None) -> list[tuple[Any, ...]] | None:
    return None if specs is None else [(spec.shape, spec.dtype) for spec in specs]


def _quickly(
    own: Sequence[int],
    grad: bool,
    plain: tuple[Make, Spec, Enter | None],
    verify: Callable[[Sequence[Any]], None] | None,
    kinds: Container[type[Any]],
) -> Going:
    """The same for the commonest calls, of one or two tensors that were used in the message before: in one go."""
    first, second, count = own[0], own[-1], len(own)
    make, spec, enter = plain

    def go_on(args: Sequence[Any], kwargs: Mapping[str, Any], recorder: Any, ahead: Any, step: Any) -> Any:
        if len(args) != count or kwargs or state.grad_enabled is not grad:
            return None
        places, other = ahead.places, args[-1]
        if places.get(args[0]._id) != first or (type(other) is not type(args[0]) and type(other) not in kinds):
            return None
        if other._recorder is not recorder or places.get(other._id) != second:
            return None
        if verify is not None:
            verify(args)
        name = recorder.new_id()
        places[name] = len(places)
        ahead.last, ahead.next = step, step.next
        output = make(recorder, spec, name)
        if enter is not None:
            quiet = step.opening is None and not observers
            drawing = ahead.drawing if quiet else ahead.drawing_at(step, args)
            if drawing is None:
                enter(args, (output,), ())
            else:  # drawing.add(output), with a call less
                output._requires_grad, output._drawing = True, drawing
                drawing.cells[name] = output._cell
        elif state.inference:
            mark((output,))
        return output

    return go_on


def repeating(make: Make) -> Callable[[Repeated], Any]:
    """What finds out how a call's results are made again."""

    def prepared(call: Repeated) -> Results:
        op, inputs, attrs, specs, order = call
        plain = not (call.many or op.view or op.hidden_rule is not None) and order is None
        names: list[str] = []

        def producing(_call: Repeated) -> Produce:
            return lambda tensors, _: [make(tensors[0]._recorder, *each) for each in zip(specs, names, strict=True)]

        run = without_values(producing)(call)

        def again(_recorder: Any, tensors: Sequence[Any], given: Sequence[str]) -> Any:
            names[:] = given
            return run([*tensors])

        blank = call._replace(inputs=tuple([None if hasattr(x, "_data") else x for x in inputs]))
        enter_later = None if call.many else entering(call, announced=False)  # who watches then watches other things
        draw = None if enter_later is None else Draw(make, specs[0], *_drawing(enter_later, blank, hidden_specs(call)))
        verify = None if op.value_check is None else _verifying(blank)
        straight = (make, specs[0], entering(call)) if plain else None
        return Results(again, straight, draw, verify, blank, numbers_of(op.key, inputs, attrs), prepared)

    return prepared


def _verifying(call: Repeated) -> Callable[[Sequence[Any]], None]:
    op, inputs, attrs, _, order = call
    return lambda tensors: check(op, tensors if order is None else gathered(inputs, order, tensors), attrs)


def _drawing(
    enter: Enter, call: Repeated, hidden: Sequence[Spec]
) -> tuple[Callable[..., None], Callable[[Sequence[Any], Any, OwnNumbers | None], None] | None]:
    """What enters such an op into the graph, of its tensors and its output, and makes that a view, if it is one."""
    op, inputs, attrs, _, order = call
    base = (order or [0])[0] or 0  # a view is one of the op's first input, which is no constant

    def enter_later(tensors: Sequence[Any], output: Any, changed: OwnNumbers | None) -> None:
        if changed is None:
            enter(tensors if order is None else gathered(inputs, order, tensors), (output,), hidden)
            return
        own = tensors if order is None else gathered(changed.inputs, order, tensors)
        before, state.grad_enabled = state.grad_enabled, True  # as it was where the call came
        try:
            enter_own = entering(call._replace(inputs=tuple(own), attrs=changed.attrs), announced=False)
        finally:
            state.grad_enabled = before
        assert enter_own is not None, "it is entered with other numbers"
        enter_own(own, (output,), hidden)

    def as_view(tensors: Sequence[Any], output: Any, changed: OwnNumbers | None) -> None:
        view_of(tensors[base], op, attrs if changed is None else changed.attrs, (output,))

    return enter_later, as_view if op.view else None
