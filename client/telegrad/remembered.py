"""What the engine's repeated.py keeps of a call that is recorded: its instruction, with nothing more to find out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad_engine.errors import TelegradError
from telegrad_engine.functions import Apply
from telegrad_engine.meta import Produce, without_values
from telegrad_engine.repeated import Call, Ready
from telegrad_engine.specs import Spec

from .value_checks import check


def recording(make: Callable[[Any, Spec, str], Any], apply: Apply) -> Callable[[Call], Ready]:
    """What gives the function that records an op on tensors like a call's; ``make`` gives an output its handle."""

    def recorded(call: Call) -> Produce:
        op, _, attrs, specs, order = call
        key = op.key

        def produce(tensors: list[Any], inputs: list[Any]) -> list[Any]:
            recorder = tensors[0]._recorder
            for tensor in tensors:
                if tensor._recorder is not recorder:
                    apply(op, tuple(inputs), attrs)  # which raises, and says what is wrong with that
            if op.value_check is not None:
                check(op, inputs, attrs)
            names = [recorder.new_id() for _ in specs]
            ids = [x._id for x in inputs] if order is None else [getattr(x, "_id", x) for x in inputs]
            try:
                recorder.emit(key, ids, names, attrs)
            except TelegradError as error:
                recorder.refuse(names, error)
                raise
            # Handles come last: one whose instruction was never recorded, for a Ctrl-C, would free what never was.
            outputs = [make(recorder, spec, name) for spec, name in zip(specs, names, strict=True)]
            return outputs

        return produce

    return without_values(recorded)
