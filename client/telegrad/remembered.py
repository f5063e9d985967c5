"""What the engine's repeated.py keeps of a call that is recorded: its instruction, with nothing more to find out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad_engine.errors import TelegradError
from telegrad_engine.functions import Apply
from telegrad_engine.inference import mark
from telegrad_engine.modes import state
from telegrad_engine.repeated import Call, Ready, entering, gathered
from telegrad_engine.specs import Spec


def recording(make: Callable[[Any, Spec], Any], apply: Apply) -> Callable[[Call], Ready]:
    """What gives the function that records an op on tensors like a call's; ``make`` gives an output its handle."""

    def recorded(call: Call) -> Ready:
        op, inputs, attrs, specs, order = call
        key, view = op.key, op.view
        only = specs[0] if not call.many else None
        enter = entering(call)
        blank = [None if hasattr(x, "_data") else x for x in inputs]
        datas = [x._data if hasattr(x, "_data") else x for x in inputs]
        hidden = () if op.hidden_rule is None else op.hidden_rule(*datas, **attrs)

        def run(tensors: list[Any]) -> Any:
            recorder = tensors[0]._recorder
            inputs = tensors if order is None else gathered(blank, order, tensors)
            for tensor in tensors:
                if tensor._recorder is not recorder:
                    return apply(op, tuple(inputs), attrs)  # which says what is wrong with that
            outputs = [make(recorder, only)] if only is not None else [make(recorder, spec) for spec in specs]
            names = [output._id for output in outputs]
            ids = [x._id for x in inputs] if order is None else [getattr(x, "_id", x) for x in inputs]
            try:
                recorder.emit(key, ids, names, attrs)
            except TelegradError as error:
                recorder.refuse(names, error)
                raise
            if enter is not None:
                enter(inputs, outputs, hidden)
            elif state.inference:
                mark(outputs)
            if view:
                for index, output in enumerate(outputs):
                    output._view_of(inputs[0], op, attrs, index)
            return outputs[0] if only is not None else op.bundle(outputs)

        return run

    return recorded
