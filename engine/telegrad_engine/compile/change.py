"""Changes a session by the effects of one run of a plan.

Running a plan changes nothing. Its effects are applied only if the results are complete and every guard holds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays import NUMPY
from ..graph.data import fill_pattern
from ..graph.node import FREED
from ..program.result import Answer, Value
from ..schema.op import follow_arrays
from ..tensor.eager import Tensor
from ..tensor.gradient_values import COUNTED
from .effects import Effects
from .input_signature import Inputs
from .plan import PlannedRun

logger = logging.getLogger(__name__)


class Change:
    """The change of a session by the effects of one run.

    Creating it computes the program's answer and allocates all arrays. ``prepare`` makes tensors and nodes. Only
    ``apply`` changes the session.
    """

    def __init__(self, effects: Effects, inputs: Inputs, run: PlannedRun) -> None:
        self._effects, self._inputs, self._run = effects, inputs, run
        self._made = self._arrays()
        self._saved = [*map(run.saved, effects.saves)]
        self.answer = self._fetch()
        self._writes = [run.write(source, inputs.tensors[position]) for position, source in effects.writes]

    def _arrays(self) -> list[Any]:
        """Return the arrays that the program makes."""
        taken, run = len(self._inputs.tensors), self._run
        found, used = [], set()
        for source in self._effects.arrays:
            uploaded = not source.is_output and source.position >= taken and source not in used
            used.add(source)
            # The copy of an upload lets the memory of its message be freed.
            found.append(run.called_with[source.position].copy() if uploaded else run.array(source))
        return found

    def _fetch(self) -> Answer:
        ids, taken = self._inputs.ids, self._inputs.tensors
        values = {}
        for fetched in self._effects.fetched:
            start = taken[fetched.version_counter]._version_counter[0] if fetched.version_counter < len(taken) else 0
            name, version = ids[fetched.id], fetched.description["version"] + start
            if fetched.kept is not None:
                array = self._made[fetched.kept]
            else:
                array = None if fetched.source is None else self._run.array(fetched.source)
            values[name] = Value({**fetched.description, "id": name, "version": version}, array)
        return Answer(values)

    def prepare(self) -> None:
        """Make the tensors and nodes."""
        effects, inputs = self._effects, self._inputs
        taken = inputs.tensors
        self._version_counters = [tensor._version_counter for tensor in taken]
        self._version_counters += [[0] for _ in effects.increases[len(taken) :]]
        memories = [*[tensor._data for tensor in taken], *self._made]
        values = {"memories": memories, "arrays": self._saved, "numbers": self._run.numbers()}
        self._tensors = self._make_tensors(values)
        node_of = effects.graph.made(self._tensors, inputs.nodes, self._version_counters, values)
        self._nodes = [node_of(place.node) for _, place in effects.placed]

    def _make_tensors(self, values: Mapping[str, Any]) -> list[Tensor]:
        """Return the tensors that the program takes, then those that it makes."""
        counters = self._version_counters
        tensors = list(self._inputs.tensors)
        for made in self._effects.made:
            path, view = fill_pattern(made.view, values)
            tensor = Tensor(follow_arrays(NUMPY, values["memories"][made.array], path))
            tensor._version_counter = counters[made.version_counter]
            tensor._update(view)
            tensors.append(tensor)
        for tensor, made in zip(tensors[len(self._inputs.tensors) :], self._effects.made, strict=True):
            if made.base is not None:
                tensor._become_view(tensors[made.base])
                tensor._seen_version += counters[made.version_counter][0] if tensor._seen_version >= 0 else 0
            if made.grad is not None:
                tensor._grad = tensors[made.grad]
        return tensors

    def apply(self) -> None:
        """Apply all effects to the session. These are mostly assignments, so that they do not fail halfway."""
        effects, tensors = self._effects, self._tensors
        names, ids = self._inputs.session.tensors, self._inputs.ids
        if self._writes:
            with np.errstate(all="ignore"):
                for write in self._writes:
                    write()
        self._writes = []  # freed before the other arrays, or the heap shrinks and grows again in the next run
        for counter, increase in zip(self._version_counters, effects.increases, strict=True):
            if increase:
                counter[0] += increase
        for number, grad in effects.grads:
            tensors[number]._grad = None if grad is None else tensors[grad]
        for (number, place), node in zip(effects.placed, self._nodes, strict=True):
            tensor = tensors[number]
            if tensor._requires_grad is not place.requires_grad:
                tensor._requires_grad = place.requires_grad
            if node is not None:
                tensor._node, tensor._output_nr = node, place.output_nr
        for number in effects.freed_nodes:
            node = self._inputs.nodes[number]
            node.saved, node.versions = FREED, ()
        for i in effects.program.freed:
            names.pop(ids[i], None)
        for i, number in effects.names:
            names[ids[i]] = tensors[number]
        try:
            self._count()
        except Exception:  # an array that is not counted is not subtracted later either
            logger.exception("the memory of a program's results was not counted")

    def _count(self) -> None:
        """Count the session's new memory."""
        effects, accounts = self._effects, self._inputs.session.accounts
        for array in (*self._made, *self._saved):  # arrays without a name are gradients, or saved in the graph
            if array.nbytes > COUNTED:
                accounts.count(array)
        for _, number in effects.names:
            tensor = self._tensors[number]
            accounts.count(tensor._data)
            if tensor._base is not None:
                accounts.count(tensor._base._data)
