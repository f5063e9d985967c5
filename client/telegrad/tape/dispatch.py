"""Wraps the SDK's functions and methods so that a repeated call is recorded by a shortcut of the tape's next node."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container
from time import monotonic
from typing import Any

from telegrad_engine.context import observers, state
from telegrad_engine.errors import TelegradError
from telegrad_engine.tensor.call_cache import Call, Prepare, Ready, gathered, preparing, remembering
from telegrad_engine.tensor.namespace import Apply, Resolve

from ..call_site import depth_of_user, frame_at, users_line
from .node import Node
from .segment import Segment
from .shortcut import Make, learn, raise_here, results_of
from .transform_stack import active

MAX_SIBLINGS = 8
"""A call tries at most this many sibling nodes: the newest."""


def dispatching(make: Make, apply: Apply, common: type[Any]) -> Callable[..., Callable[..., Any]]:
    """Return a replacement for :func:`remembering` that records calls; most tensors are of type ``common``."""
    prepare_again = preparing(results_of(make), apply)

    def dispatched(
        otherwise: Callable[..., Any], resolve: Resolve, prepare: Prepare, kinds: Container[type[Any]]
    ) -> Callable[..., Any]:
        call = remembering(otherwise, resolve, prepare, kinds)

        def front(*args: Any, **kwargs: Any) -> Any:
            if observers and active.observer is not None:
                return otherwise(*args, **kwargs)
            if not args or (type(args[0]) is not common and type(args[0]) not in kinds) or state.autocast is not None:
                return call(*args, **kwargs)
            recorder = args[0]._recorder
            if recorder.segment is None:
                return call(*args, **kwargs)
            with recorder.lock:
                segment = recorder.segment
                node = segment.next
                if node is not None:
                    policy = recorder.flush_policy
                    if node.index > policy.enough or (node.looks_at_clock and monotonic() > policy.due):
                        recorder.relieve()
                        segment = recorder.segment
                        node = segment.next
                if node is not None:
                    if node.index == 1:
                        recorder.begin()
                    try:
                        result = None
                        if node.function is front:
                            shortcut = node.shortcut
                            result = shortcut.record(args, kwargs, recorder, segment, node)
                        if result is None:
                            shortcut, result = _by_another(front, node, args, kwargs, recorder, segment)
                    except BaseException:
                        segment.go_back()
                        raise
                    if result is not None:
                        node = segment.last
                        frame = frame_at(node.line, shortcut.depth)
                        if frame is None:
                            _note_line(segment, node, shortcut)
                        if shortcut.op.may_raise:
                            raise_here(recorder, shortcut.op, frame)
                        return result
                before = segment.last
                result = call(*args, **kwargs)
                node = segment.last
                if node.before is before and segment.first_new is None and not segment.watched:
                    learn(node, segment, front, resolve, prepare_again, kinds, args, kwargs, result)
                return result

        return functools.wraps(otherwise)(front)

    return dispatched


def _by_another(front: Callable[..., Any], due: Node, args: Any, kwargs: Any, recorder: Any, segment: Segment) -> Any:
    """Record the call with another shortcut of the same function. Return that and the result, or two Nones."""
    last = segment.last
    nodes = [due, *[node for node in [*last.children][-MAX_SIBLINGS:] if node is not due]]
    for node in nodes:
        for index, shortcut in enumerate(node.shortcuts):
            if shortcut.function is not front or (node is due and not index and node.function is front):
                continue
            segment.go_back()
            result = shortcut.record(args, kwargs, recorder, segment, node)
            if result is not None:
                if index:
                    others = [each for each in node.shortcuts if each is not shortcut]
                    node.shortcuts = [shortcut, *others]
                node.function, node.shortcut = front, shortcut
                last.next = node
                return shortcut, result
    segment.go_back()
    return None, None


def _note_line(segment: Segment, node: Node, shortcut: Any) -> None:
    """Find the user's line of a call. Correct the shortcut's depth if it is the node's line, else note the line."""
    line = users_line()
    if line == node.line:
        shortcut.depth = depth_of_user(_note_line.__code__)
    else:
        segment.lines[node.index] = line


def recording(make: Make, apply: Apply) -> Callable[[Call], Ready]:
    """Return a factory of functions that record an op on tensors like a call's; ``make`` makes an output's handle."""
    find_results = results_of(make)

    def prepared(call: Call) -> Ready:
        results = find_results(call)
        op, blank, attrs, specs, order = results.call
        key, entry, verify = op.key, results.entry, results.verify

        def run(tensors: list[Any]) -> Any:
            recorder = tensors[0]._recorder
            inputs = tensors if order is None else gathered(blank, order, tensors)
            for tensor in tensors:
                if tensor._recorder is not recorder:
                    apply(op, tuple(inputs), attrs)  # raises the error for tensors of several sessions
            if verify is not None:
                verify(tensors)
            names = [recorder.new_id() for _ in specs]
            try:
                recorder.emit(key, [getattr(x, "_id", x) for x in inputs], names, attrs)
            except TelegradError:
                for name in names:  # no handle exists to remove it by dying
                    recorder.failed.pop(name, None)
                raise
            # Handles are made last: if a Ctrl-C prevented the recording, they would free tensors that do not exist.
            result, outputs = results.make(recorder, names, tensors)
            if entry is not None:
                entry.enter(tensors, outputs, None)
            raise_here(recorder, op)
            return result

        return run

    return prepared
