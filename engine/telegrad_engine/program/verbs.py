"""Verbs: the instructions that are not ops, such as uploads, gradients, names and modes.

A verb is declared like an op: its handler's signature defines the inputs and attributes that it takes.
A handler gets the session, the output ids and the resolved arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from .. import autograd
from ..autograd.anomaly import located, under
from ..context import generator, generator_from_bytes, generator_to_bytes
from ..dtypes import FLOATING, DType, from_numpy
from ..errors import DTypeMismatch, GradRequired, InvalidArgument, InvalidOperation, InvalidValue
from ..graph.differentiation import Derivation, node_at, spec_of
from ..optim import algorithms
from ..schema.parameters import Array, Arrays, Bool, DTypeArg, Int, Ints, OptionalBool, OptionalDType, Str
from ..schema.promotion import default_float
from ..schema.signature import Signature, read_params
from ..tensor.conversion import as_array
from ..tensor.eager import upload
from .instructions import Members
from .json_codec import from_lists
from .safetensors import LARGE
from .verb_params import Data, Names, OptionalId, Options, States, Tensors

Handler = Callable[..., Sequence[Any] | None]
NONE: Mapping[str, str] = {}
MAX_EVENTS, MAX_RANGES = 200_000, 1_000
"""The maximum number of ranges that a profile keeps individually, and of labelled ranges open inside each other."""


class Verb(Signature):
    """A declared verb: its name, parameters, documentation and handler, and what the SDK's recorder knows about it.

    ``traits`` are those of the attributes below that are true.
    """

    local = False
    """Whether the recorder knows what it depends on and changes: the tensors that it names, with their memory and
    gradients. If another verb fails, nothing recorded after it runs."""
    repeatable = False
    """Whether it depends only on tensors and graphs: plans, procedures and compiled functions may contain it."""
    quiet = False
    """Whether it neither reads the graph of ops nor changes saved tensors."""
    aliases = False
    """Whether its output shares the memory of its input."""
    ending = False
    """Whether it is part of a message's ending, and not sent again after an error."""
    may_raise = False
    """Whether values may make it raise an error."""

    def __init__(self, handler: Handler, deprecated: Mapping[str, str] = NONE, **traits: bool) -> None:
        super().__init__(handler.__name__, read_params(handler, skip=2))
        vars(self).update(traits)
        self.deprecated = deprecated
        """The deprecated names of attributes, each with the current one."""
        self._members = Members(self.name, [p.name for p in self.attr_params], deprecated)
        self.handler = handler
        self.module = handler.__module__
        self.doc = inspect.getdoc(handler) or ""

    def check_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Check attributes given by name, current or deprecated."""
        return super().check_attrs(self._members.of(attrs, InvalidArgument) if self.deprecated else attrs)


VERBS: dict[str, Verb] = {}


def verb(handler: Handler) -> Handler:
    """Declare a verb under the handler's name."""
    return verb_with()(handler)


def verb_with(**traits: Any) -> Callable[[Handler], Handler]:
    """Declare a verb with these traits of a :class:`Verb`."""

    def declare(handler: Handler) -> Handler:
        VERBS[handler.__name__] = Verb(handler, **traits)
        return handler

    return declare


# Values and names -----------------------------------------------------------------------------------


@verb_with(local=True, quiet=True)
def tensor(
    session: Any,
    out: Sequence[str],
    *,
    data: Data,
    dtype: OptionalDType = None,
    requires_grad: Bool = False,
) -> Sequence[Any]:
    """Make a tensor from data: nested lists, or the container's array with the output's id (or a given name).

    Integers in lists get the default dtype if the tensor requires grad, since many languages write 2.0 as 2.
    """
    if not hasattr(data, "dtype"):
        data = from_lists(data)
        if requires_grad and dtype is None and as_array(data).dtype == np.int64:
            dtype = from_numpy(default_float())
    stays = _stays(data, dtype)
    array = data if stays else as_array(data, dtype)
    session.accounts.check_room(array.nbytes)
    result = upload(array)
    if stays and result._data is array:
        session.accounts.count(array.base, lent=True)
    if requires_grad:
        result.requires_grad_()
    return [result]


def _stays(array: Any, dtype: DType | None) -> bool:
    """Return whether a tensor of this dtype may use the array itself: it is large, writable and most of its message.

    An array is writable if its message was read into memory of its own, which nothing else uses.
    """
    if type(array) is not np.ndarray or array.nbytes < LARGE or not array.flags.writeable:
        return False
    message = getattr(array.base, "base", None)
    return (
        isinstance(message, memoryview)
        and 2 * array.nbytes >= message.nbytes
        and (dtype is None or dtype.numpy == array.dtype)
    )


@verb
def set_data(session: Any, out: Sequence[str], input: Array, *, data: Data) -> None:
    """Replace a tensor's values with data of the same shape, outside the graph. The dtype is unchanged."""
    array = as_array(data if hasattr(data, "dtype") else from_lists(data), from_numpy(input._data.dtype))
    if array.shape != input._data.shape:
        raise InvalidValue(f"the data has shape {list(array.shape)}, the tensor {list(input._data.shape)}")
    input._store(array)
    input._version_counter[0] += 1


@verb
def share_data(session: Any, out: Sequence[str], input: Array, source: Array) -> None:
    """Make a tensor share another's memory, outside the graph, like assigning to torch's ``tensor.data``."""
    input._check_new_data(source)
    input._share(source)


@verb_with(local=True, repeatable=True, quiet=True, ending=True)
def free(session: Any, out: Sequence[str], tensors: Arrays) -> None:
    """Remove the names of tensors. The graph keeps the tensors that it still needs."""


@verb_with(local=True, quiet=True, ending=True)
def fetch(session: Any, out: Sequence[str], tensors: Arrays, *, values: Bool = True) -> None:
    """Return tensors in the answer: their descriptions, with or without their values."""


@verb_with(local=True, repeatable=True, quiet=True, aliases=True)
def alias(session: Any, out: Sequence[str], input: Array) -> Sequence[Any]:
    """Give a tensor another name."""
    return [input]


@verb_with(local=True, repeatable=True)
def gradient_edge(
    session: Any, out: Sequence[str], input: Array, *, path: Ints = (), output_nr: Int = 0
) -> Sequence[Any]:
    """Return a tensor at a place in the graph, for ``backward`` and ``grad``; it stays there if ``input`` moves on.

    The place is output ``output_nr`` of the tensor's ``grad_fn``, or of the node at the end of a ``path`` of edges from
    there; for a leaf it is the leaf. The values are zeros.
    """
    if not input.requires_grad:
        raise GradRequired("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    node = node_at(input, path)
    if node.leaf is not None:
        return [node.leaf]
    spec = spec_of(node, output_nr)
    zeros = input.detach().new_zeros((), dtype=from_numpy(spec.dtype)).expand(spec.shape).detach()
    zeros._node, zeros._output_nr, zeros._requires_grad = node, output_nr, True
    return [zeros]


@verb_with(local=True, repeatable=True)
def refresh(session: Any, out: Sequence[str], input: Array) -> None:
    """Update a view's place in the graph after in-place changes to its base, as any use of the view does."""
    input._refresh()


@verb_with(local=True, repeatable=True, quiet=True, aliases=True)
def detach(session: Any, out: Sequence[str], input: Array, *, shares_version: Bool = True) -> Sequence[Any]:
    """Return a tensor that shares the memory of ``input`` and is outside the graph.

    Nodes that saved ``input`` detect in-place changes through it, unless it has a version of its own
    (``shares_version`` false), like torch's ``tensor.data``.
    """
    return [input.detach() if shares_version else input._data_alone()]


@verb_with(local=True, repeatable=True)
def detach_(session: Any, out: Sequence[str], input: Array) -> None:
    """Detach a tensor from the graph in place."""
    input.detach_()


@verb_with(local=True, repeatable=True)
def requires_grad_(session: Any, out: Sequence[str], input: Array, *, requires_grad: Bool = True) -> None:
    """Set whether gradients are computed for a leaf."""
    input.requires_grad_(requires_grad)


@verb_with(local=True)
def manual_seed(session: Any, out: Sequence[str], *, seed: Int) -> None:
    """Seed the session's random number generator."""
    session.environment.seed(seed)


@verb_with(local=True)
def get_rng_state(session: Any, out: Sequence[str]) -> Sequence[Any]:
    """Return the state of the session's random number generator, as bytes."""
    return [upload(generator_to_bytes(generator()))]


@verb_with(local=True)
def set_rng_state(session: Any, out: Sequence[str], state: Array) -> None:
    """Set the session's random number generator to a state from ``get_rng_state``."""
    session.environment.use_generator(generator_from_bytes(state._host()))


@verb_with(local=True)
def set_default_dtype(session: Any, out: Sequence[str], *, dtype: DTypeArg) -> None:
    """Set the default dtype of new floating-point tensors."""
    session.environment.set_default_dtype(dtype)


# Gradients ------------------------------------------------------------------------------------------


@verb_with(local=True, repeatable=True)
def backward(
    session: Any,
    out: Sequence[str],
    tensors: Arrays,
    gradients: Tensors = None,
    inputs: Arrays = None,
    *,
    retain_graph: OptionalBool = None,
    create_graph: Bool = False,
    detect_anomaly: Bool = False,
    check_nan: Bool = True,
    next_call: OptionalId = None,
    next_ctx: OptionalId = None,
) -> None:
    """Accumulate the gradients of tensors into the leaves, or only into ``inputs``.

    With ``detect_anomaly`` an error in a derivative has as ``node`` the index of its node among the nodes that the
    tensors depend on, newest first, and with ``check_nan`` a NaN is an error. ``next_call`` and ``next_ctx`` are as in
    ``resume``.
    """
    if not tensors:
        raise InvalidArgument("backward needs at least one tensor")
    arguments = tensors, gradients, retain_graph, create_graph, inputs
    with under(located(check_nan)) if detect_anomaly else nullcontext():
        session.suspensions.differentiate(session, Derivation.of_backward(*arguments), out)


@verb_with(local=True, repeatable=True)
def grad(
    session: Any,
    out: Sequence[str],
    outputs: Arrays,
    inputs: Arrays,
    grad_outputs: Tensors = None,
    *,
    retain_graph: OptionalBool = None,
    create_graph: Bool = False,
    allow_unused: OptionalBool = None,
    materialize_grads: Bool = False,
    is_grads_batched: Bool = False,
    detect_anomaly: Bool = False,
    check_nan: Bool = True,
    next_call: OptionalId = None,
    next_ctx: OptionalId = None,
) -> Sequence[Any]:
    """Return the gradients of ``outputs`` with respect to ``inputs``, one per input, without changing ``.grad``.

    With ``is_grads_batched`` the ``grad_outputs`` and the results have a leading batch dimension; such a pass cannot
    wait for client functions and hooks. ``detect_anomaly`` and ``check_nan`` are as in ``backward``, ``next_call`` and
    ``next_ctx`` as in ``resume``, with the gradients' ids after those of the results.
    """
    arguments = outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads
    with under(located(check_nan)) if detect_anomaly else nullcontext():
        if is_grads_batched:
            return autograd.grad(*arguments, is_grads_batched=True)
        found: Sequence[Any] = session.suspensions.differentiate(session, Derivation.of_grad(*arguments), out)
        return found


@verb_with(local=True, repeatable=True, quiet=True)
def grad_of(session: Any, out: Sequence[str], input: Array) -> Sequence[Any]:
    """Give the accumulated gradient of a tensor a name."""
    return [input.grad]


@verb_with(local=True, repeatable=True, quiet=True)
def set_grad(session: Any, out: Sequence[str], input: Array, grad: Array = None) -> None:
    """Set a tensor's gradient, or clear it with null."""
    input.grad = grad


@verb_with(local=True, repeatable=True, quiet=True)
def zero_grad(session: Any, out: Sequence[str], tensors: Arrays, *, set_to_none: Bool = True) -> None:
    """Clear the gradients of tensors, or fill them with zeros."""
    for t in tensors:
        if t._grad is None:
            continue
        if set_to_none:
            t._grad = None
        else:
            t._grad = t._grad.detach()
            t._grad._store(0)
            t._grad._version_counter[0] += 1


@verb_with(local=True, repeatable=True)
def retain_grad(session: Any, out: Sequence[str], input: Array) -> None:
    """Make backward store the gradient of a non-leaf, too."""
    input.retain_grad()


@verb_with(local=True, repeatable=True)
def optim_step(
    session: Any,
    out: Sequence[str],
    params: Arrays,
    states: States = (),
    numbers: Array = None,
    condition: Array = None,
    *,
    algorithm: Str,
    settings: Options = {},  # noqa: B006
    scheduled: Names = (),
) -> None:
    """Update parameters with one step of an optimizer, whose states are lists of tensors.

    The ``scheduled`` settings are not in ``settings``, but in order in the tensor ``numbers``, so that a schedule does
    not change the program. If ``condition``, a bool tensor of one element, is false, nothing is updated.
    """
    if condition is not None:
        if condition._data.dtype != bool or condition._data.size != 1:
            raise InvalidArgument("optim_step: the condition is a bool tensor of one element")
        if not algorithms.namespace().holds(condition._data.reshape(())):
            return
    for t in params:
        if t._data.dtype not in FLOATING:
            raise DTypeMismatch("an optimizer's parameters have a floating dtype")
    if numbers is not None:
        settings = {**settings, **algorithms.scheduled(algorithm, scheduled, numbers._data)}
    elif scheduled:
        raise InvalidArgument("optim_step: scheduled settings want a tensor of numbers")
    algorithms.step(algorithm, params, states, settings)


# Profiles ------------------------------------------------------------------------------------------


@verb
def start_profile(
    session: Any,
    out: Sequence[str],
    *,
    record_shapes: Bool = False,
    profile_memory: Bool = False,
    max_events: Int = 20_000,
) -> None:
    """Record the time of each op from now on; ``GET …/profile`` returns the profile.

    The first ``max_events`` ranges, at most 200,000, are kept individually; the averages include all ranges.
    """
    from ..profiler import profile

    if session.profile is not None:
        raise InvalidOperation("a profile of this session runs already; stop_profile ends it")
    if not 0 <= max_events <= MAX_EVENTS:
        raise InvalidValue(f"max_events is 0 to {MAX_EVENTS}, not {max_events}")
    session.profile = profile(record_shapes=record_shapes, profile_memory=profile_memory, max_events=max_events)
    session.profile.start()


@verb
def stop_profile(session: Any, out: Sequence[str]) -> None:
    """End the profile of this session. It can be read until the next one ends."""
    if session.profile is None:
        raise InvalidOperation("no profile of this session runs; start_profile begins one")
    session.profile.stop()
    session.profile, session.profiled, session.ranges = None, session.profile, []


@verb
def begin_range(session: Any, out: Sequence[str], *, name: Str) -> None:
    """Label the instructions up to the matching ``end_range``, if a profile runs."""
    from ..profiler import record_function

    if session.profile is None:
        return
    if len(session.ranges) == MAX_RANGES:
        raise InvalidOperation(f"at most {MAX_RANGES} ranges can be open inside each other")
    session.ranges.append(record_function(name).__enter__())


@verb
def end_range(session: Any, out: Sequence[str]) -> None:
    """End the innermost labelled range. Does nothing if there is none, as after a profile has ended."""
    if session.ranges:
        session.ranges.pop().__exit__()
