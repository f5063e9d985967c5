"""What stands in front of the SDK's functions and methods: a call that is due has little left to do."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from time import monotonic
from typing import Any

from telegrad_engine.functions import Apply, Resolve
from telegrad_engine.modes import state
from telegrad_engine.repeated import Prepare, preparing, remembering

from ..lines import users_line
from ..transforms.stack import active, in_any_thread
from .calls import Make, repeating
from .learning import watch
from .rounds import Round
from .steps import Step


def foreseeing(make: Make, apply: Apply, common: type[Any]) -> Callable[..., Callable[..., Any]]:
    """What takes the place of :func:`remembering` where calls are recorded; most tensors are of the ``common`` kind."""
    prepare_again = preparing(repeating(make), apply)

    def in_front(
        otherwise: Callable[..., Any], resolve: Resolve, prepare: Prepare, kinds: Container[type[Any]]
    ) -> Callable[..., Any]:
        call = remembering(otherwise, resolve, prepare, kinds)

        def front(*args: Any, **kwargs: Any) -> Any:
            if in_any_thread and active.stack:
                return otherwise(*args, **kwargs)
            if not args or (type(args[0]) is not common and type(args[0]) not in kinds):
                return call(*args, **kwargs)
            recorder = args[0]._recorder
            ahead = recorder.ahead
            step = None if ahead is None or state.autocast is not None else ahead.next
            while step is not None and step.front is not front:
                step = step.sibling
            if step is not None:
                with recorder.lock:
                    try:
                        pace = recorder.pace
                        if step.index == 1:
                            pace.begin()
                        elif step.index > pace.enough or (step.looks_at_the_clock and monotonic() > pace.due):
                            recorder.relieve()
                        result = None
                        if ahead is recorder.ahead and step.before is ahead.last:  # or it was sent, or another's turn
                            result = step.go_on(args, kwargs, recorder, ahead, step)
                            if result is None:
                                result = _go_on_otherwise(step, args, kwargs, recorder, ahead)
                        if result is not None:
                            line = ahead.last.line
                            try:
                                frame = sys._getframe(ahead.last.depth)
                                same = frame.f_code is line.code and frame.f_lasti == line.offset
                            except ValueError:  # it was called from further down
                                same = False
                            if not same:
                                ahead.lines[ahead.last.index] = users_line()
                            return result
                    except BaseException:
                        recorder.lose_sight()
                        raise
            if not recorder.learning:
                return call(*args, **kwargs)
            with recorder.lock:
                return watch(recorder, front, call, resolve, prepare_again, kinds, args, kwargs)

        return functools.wraps(otherwise)(front)

    return in_front


def _go_on_otherwise(step: Step, args: Sequence[Any], kwargs: Mapping[str, Any], recorder: Any, ahead: Round) -> Any:
    """The result by another step of the same function, that came in the place of this one; None if there is none."""
    front, sibling = step.front, step.sibling
    ahead.go_back()
    while sibling is not None:
        if sibling.front is front:
            result = sibling.go_on(args, kwargs, recorder, ahead, sibling)
            if result is not None:
                return result
            ahead.go_back()
        sibling = sibling.sibling
    return None
