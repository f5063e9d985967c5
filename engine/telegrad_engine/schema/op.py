"""Ops and their catalogue.

An op is declared once: a kernel with torch's signature, a shape rule and derivatives. Execution, the SDK's methods,
validation, the catalogue, the stubs and the tests are derived from this declaration.

A derivative is a rule per input. It uses a namespace ``F`` of functions on raw arrays or, under ``create_graph``, on
tensors. Its parameters name the values that it needs: an input, ``result`` or another output, an attribute,
``<input>_shape`` or ``<input>_dtype``. Only these values are saved.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import dtypes, shapes
from ..errors import InvalidArgument, UnknownOp
from ..lru import LRU
from ..shapes import Spec
from .derivative_plan import Plan, Rule, make_plan
from .signature import Signature, given, parameter_names, read_params

PLANS = 256
"""The number of most recently used plans that an op caches. Each combination of inputs that require grad has one."""
SCRATCH = 0.75
"""The default scratch memory of a kernel, besides its results, as a multiple of its inputs and results."""
NO_ATTRS: Mapping[str, Any] = {}

PREFIXES = {"torch.linalg": "linalg_"}
"""The prefix of the op keys of a namespace, which separates torch.linalg.norm from torch.norm."""

FUNCTIONAL = "functional_"
"""The prefix of torch.nn.functional functions that differ from the tensor method of the same name, such as unfold."""


class Op(Signature):
    """A declared operation; its attributes are derived from the declaration (see the module's docstring)."""

    pointwise = False
    """Whether each element of the result depends on one element of each broadcast input."""

    def __init__(
        self,
        kernel: Callable[..., Any],
        rule: Rule,
        *,
        key: str | None = None,
        outputs: Sequence[str] = ("result",),
        hidden: Sequence[str] = (),
        hidden_rule: Rule | None = None,
        node: str | Callable[[Any], str] | None = None,
        namespace: str = "torch",
        functional: bool | None = None,
        takes_inplace: bool = False,
        method: bool | None = None,
        inplace: bool = False,
        view: bool = False,
        may_copy: bool = False,
        may_alias: bool = False,
        random: bool = False,
        factory: bool = False,
        aliases: Sequence[str] = (),
        common: Callable[[tuple[Any, ...]], np.dtype[Any]] | None = None,
        unpromoted: int = 0,
        keeps_dtype: bool = False,
        lists_outputs: bool = False,
        internal: bool = False,
        private: bool = False,
        truth: bool = False,
        constants: Sequence[str] = (),
        composite: bool = False,
        nondifferentiable_inputs: Callable[..., Sequence[str]] | None = None,
        scratch: float | Callable[..., int] = SCRATCH,
        blocked: bool = False,
    ) -> None:
        prefix = PREFIXES.get(namespace, "")
        self.key = prefix + (key or kernel.__name__.removesuffix("_"))
        super().__init__(self.key.split(".")[0], read_params(kernel, skip=1 + random))
        self.public = self.name.removeprefix(prefix or FUNCTIONAL)
        """The op's name in its namespace."""
        self.doc = inspect.getdoc(kernel) or ""
        self.raw = kernel
        self.kernel = _by_position(kernel, self, random)
        self.rule = _filled(rule, self)
        self.outputs = tuple(outputs)
        self.hidden = tuple(hidden)
        self.hidden_rule = None if hidden_rule is None else _filled(hidden_rule, self)
        self.node = node
        self.namespace = namespace
        self.functional = namespace == "torch.nn.functional" if functional is None else functional
        """Whether torch.nn.functional has the op; with ``takes_inplace``, the function has a parameter ``inplace``."""
        self.takes_inplace = takes_inplace
        self.method = bool(self.tensor_params) and namespace == "torch" if method is None else method
        self.inplace = inplace
        self.view = view
        self.may_copy = may_copy
        """Whether a view op makes a copy if the strides of its input do not allow a view."""
        self.may_alias = may_alias
        """Whether a composite op may return an input or a view of one; otherwise such a result is copied."""
        self.random = random
        self.factory = factory
        self.aliases = tuple(aliases)
        self.common = common
        self.unpromoted = unpromoted
        self.keeps_dtype = keeps_dtype
        self.lists_outputs = lists_outputs
        self.internal = internal or private
        """Whether it is used only by other ops or tensor methods, and is not a function of torch."""
        self.private = private
        """Whether only derivatives and in-place ops may use it, but no program, function or template."""
        self.truth = truth
        """Whether functions and methods return a Python bool instead of a 0-dim tensor."""
        self.constants = frozenset(self.outputs.index(name) for name in constants)
        """The floating outputs that have no derivative, by position."""
        self.nondifferentiable_inputs = nondifferentiable_inputs and with_defaults(nondifferentiable_inputs, self)
        """A function of the attributes that returns the names of the inputs whose gradient is None, as in torch."""
        self.scratch = _filled(scratch, self) if callable(scratch) else scratch
        """The memory that the kernel allocates besides its results: a multiple of inputs and results, or a function
        ``scratch(*inputs, **attrs)`` of inputs with a shape and a dtype that returns bytes."""
        self.blocked = blocked
        """Whether the kernel works in blocks, so that ``scratch`` is a multiple of a block and the results."""
        self.composite = composite
        self.value_check: Rule | None = None
        """``value_check(xp, *inputs, **attrs)`` raises the kernel's errors about the values of the inputs at the
        positions ``checked``; it needs only the shapes of the other inputs."""
        self.checked: tuple[int, ...] = ()
        self.rules: dict[str, Rule] = {}
        self.joint_rule: Rule | None = None
        self.differentiable = composite
        """Whether any input has a derivative."""
        self.plans: LRU[Any, Plan] = LRU(PLANS)
        self.has_lists = any(p.is_list for p in self.tensor_params)
        self._bundle = _named_results(self.name, self.outputs) if len(self.outputs) > 1 else None

    def __repr__(self) -> str:
        return f"<op {self.signature}>"

    def bundle(self, outputs: Sequence[Any]) -> Any:
        """Return the outputs in the form of the public API: one tensor, a tuple, or torch's named tuple."""
        if self._bundle is not None:
            return self._bundle(*outputs)
        return tuple(outputs) if self.lists_outputs else outputs[0]

    # Declaring ---------------------------------------------------------------------------

    def derivative(self, **rules: Rule) -> Op:
        """Declare the derivative with respect to each named input."""
        unknown = set(rules) - {p.name for p in self.tensor_params}
        if unknown:
            raise TypeError(f"{self.key} has no tensor parameter {unknown}")
        self.rules.update(rules)
        self.differentiable = True
        return self

    def joint_derivative(self, rule: Rule) -> Rule:
        """Declare one rule for all inputs: ``rule(F, grad, needs, …)``.

        ``needs`` is a tuple with one bool per tensor parameter; the rule returns one gradient or None for each.
        """
        self.joint_rule = rule
        self.differentiable = True
        return rule

    def checks(self, *names: str) -> Callable[[Rule], Rule]:
        """Declare a check of these inputs' values that raises the kernel's errors without running the kernel."""
        positions = tuple([i for i, p in enumerate(self.tensor_params) if p.name in names])

        def declare(check: Rule) -> Rule:
            self.value_check, self.checked = with_defaults(check, self), positions
            return check

        return declare

    # Recording ---------------------------------------------------------------------------

    def plan(self, needs: tuple[Any, ...]) -> Plan:
        """Return the plan for the case that the inputs flagged in ``needs`` require grad.

        ``needs`` has a bool per tensor parameter, or a tuple of bools for a list of tensors.
        """
        try:
            return self.plans[needs]
        except KeyError:
            plan = self.plans[needs] = make_plan(self, needs)
            return plan

    def edges_without_gradient(self, attrs: Mapping[str, Any]) -> Sequence[int]:
        """The edges of a node with these attributes that carry no gradient, even if their inputs require grad."""
        if self.nondifferentiable_inputs is None:
            return ()
        names = self.nondifferentiable_inputs(**attrs)
        return [i for i, p in enumerate(self.tensor_params) if p.name in names]


class _Results:
    """A mixin that gives a named tuple of outputs the repr of torch's ``return_types``."""

    _fields: tuple[str, ...]

    def __repr__(self) -> str:
        parts = ",\n".join([f"{field}={getattr(self, field)!r}" for field in self._fields])
        return f"telegrad.return_types.{type(self).__name__}(\n{parts})"


def _named_results(name: str, outputs: Sequence[str]) -> Any:
    """Make the named tuple type of an op's outputs."""
    make: Any = namedtuple  # Any, because type checkers require literal field names
    fields = make("fields", outputs)
    return type(name, (_Results, fields), {"__slots__": (), "__module__": "telegrad.return_types"})


def _by_position(function: Callable[..., Any], op: Op, random: bool, leading: int = 1) -> Callable[..., Any]:
    """Wrap ``function`` to take its tensors by position, even if its signature does not list all tensors first."""
    tensors_seen_last = max((i for i, p in enumerate(op.params) if p.kind.is_tensor), default=-1)
    if tensors_seen_last == len(op.tensor_params) - 1 and not any(p.keyword_only for p in op.tensor_params):
        return function
    names = [p.name for p in op.tensor_params]
    lead = leading + random

    @functools.wraps(function)
    def call(*args: Any, **attrs: Any) -> Any:
        return function(*args[:lead], **dict(zip(names, args[lead:], strict=True)), **attrs)

    return call


def _filled(function: Callable[..., Any], op: Op) -> Callable[..., Any]:
    """Wrap ``function`` to take its tensors by position and only the attributes that it names."""
    return with_defaults(_by_position(function, op, False, leading=0), op)


def with_defaults(function: Callable[..., Any], op: Op) -> Callable[..., Any]:
    """Wrap ``function`` to be called with only the attributes that it names, with the op's defaults for missing ones.

    A function that takes ``**attrs`` is returned unchanged.
    """
    parameters = parameter_names(function)
    if parameters and parameters[-1].startswith("**"):
        return function
    named = [p.name for p in op.attr_params if p.name in parameters]
    defaults = op.defaults

    def call(*inputs: Any, **attrs: Any) -> Any:
        return function(*inputs, **{name: attrs[name] if name in attrs else defaults[name] for name in named})

    return call if named else lambda *inputs, **attrs: function(*inputs)


class Catalogue:
    """All ops by key, and all ops that are not private by name, with their overloads in declared order."""

    def __init__(self) -> None:
        self.ops: dict[str, Op] = {}
        self.overloads: dict[str, list[Op]] = {}
        self._identifiers: dict[str, Op] = {}
        """The ops by their keys as Python identifiers: ``max_dim`` for ``max.dim``."""

    def add(self, op: Op) -> Op:
        """Add an op. Raises ValueError if its key is already in use."""
        if op.key in self.ops:
            raise ValueError(f"op {op.key} is declared twice")
        self.ops[op.key] = op
        self._identifiers[op.key.replace(".", "_")] = op
        if op.private:
            return op
        for name in (op.name, *op.aliases):
            family = self.overloads.setdefault(name, [])
            # Internal ops, such as that of normal_, come last, so that a call does not resolve to them first.
            family.insert(len(family) if op.internal else sum(not other.internal for other in family), op)
        return op

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops.values())

    def identified(self, identifier: str) -> Op | None:
        """The op whose key, with ``_`` in place of ``.``, is this identifier; None if there is none."""
        return self._identifiers.get(identifier)

    def get(self, key: str) -> Op:
        """The op with this key. Raises UnknownOp, which suggests similar names, if there is none."""
        try:
            return self.ops[key]
        except KeyError:
            raise unknown_op(key, self.ops) from None

    def resolve(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Op, tuple[Any, ...], dict[str, Any]]:
        """The first overload of ``name`` that accepts these arguments, with its inputs and attributes."""
        candidates = self.overloads.get(name)
        if candidates is None:
            raise unknown_op(name, self.overloads)
        return choose(name, candidates, args, kwargs)


def choose(
    name: str, candidates: Sequence[Op], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Op, tuple[Any, ...], dict[str, Any]]:
    """The first of the ops that accepts these arguments, with its inputs and attributes.

    A 0-dim tensor counts as a number only if no op accepts it as a tensor: ``max(x, tensor(0))`` compares two tensors.
    """
    failure: InvalidArgument | None = None
    try:
        for exact, op in itertools.product((True, False), candidates):
            try:
                inputs, attrs = op.bind(args, kwargs, exact)
            except InvalidArgument as error:
                failure = failure or error
                continue
            return op, inputs, attrs
        if len(candidates) > 1:
            expected = "".join(f"\n * {op.signature.removeprefix(op.name)}" for op in candidates)
            raise InvalidArgument(
                f"{name}() received an invalid combination of arguments - got ({given(args, kwargs)}), "
                f"but expected one of:{expected}"
            )
        assert failure is not None
        raise failure
    finally:
        failure = None  # breaks a reference cycle: its traceback refers to this frame and so to the arguments


def unknown_op(name: str, known: Mapping[str, Any]) -> UnknownOp:
    """The error for an op that does not exist, with suggestions of similar names."""
    import difflib

    near = difflib.get_close_matches(name, known, n=3)
    hint = f"; did you mean {', '.join(near)}?" if near else "; GET /v1/ops lists all of them"
    return UnknownOp(f"unknown op {name!r:.80}{hint}", op=name[:80])


CATALOGUE = Catalogue()


# Families: decorators that supply the shape rule, promotion and in-place form ----------------


def op(rule: Rule, **options: Any) -> Callable[[Callable[..., Any]], Op]:
    """Declare an op with its own shape rule: ``rule(*inputs, **attrs)`` returns a Spec or a list of Specs."""

    def declare(kernel: Callable[..., Any]) -> Op:
        return CATALOGUE.add(Op(kernel, rule, **options))

    return declare


def default_float() -> np.dtype[Any]:
    """The default dtype of new floating-point tensors."""
    from ..context import state

    return state.default_dtype


def common_dtype(values: tuple[Any, ...]) -> np.dtype[Any]:
    """The dtype to compute in, by torch's promotion rules; None values are ignored."""
    return dtypes.result_type(tuple([v for v in values if v is not None]), default_float())


def common_float(values: tuple[Any, ...]) -> np.dtype[Any]:
    """Like :func:`common_dtype`, but the default floating dtype for integers and bools."""
    dtype = common_dtype(values)
    return dtype if dtype in dtypes.FLOATING else default_float()


def common_count(values: tuple[Any, ...]) -> np.dtype[Any]:
    """Like :func:`common_dtype`, but int64 for bools."""
    dtype = common_dtype(values)
    return dtypes.int64.numpy if dtype == dtypes.bool_.numpy else dtype


def elementwise(
    *,
    out: str = "common",
    floats: bool = False,
    counts: bool = False,
    unpromoted: int = 0,
    widens: bool = True,
    **options: Any,
) -> Callable[[Callable[..., Any]], Op]:
    """Declare an op that broadcasts its inputs.

    With ``floats``, integers are computed in the default floating dtype; with ``counts``, bools are computed in int64.
    ``out="bool"`` makes the result a bool tensor. The first ``unpromoted`` inputs, such as a condition or a mask, do
    not affect the dtype. With ``widens``, float16 and bfloat16 are computed in float32.
    """
    choose = common_float if floats else common_count if counts else common_dtype

    def common(inputs: tuple[Any, ...]) -> np.dtype[Any]:
        return choose(inputs[unpromoted:])

    def computed(inputs: tuple[Any, ...]) -> np.dtype[Any]:
        dtype = choose(inputs[unpromoted:])
        return dtypes.float32.numpy if dtype in dtypes.LOW else dtype

    def rule(*inputs: Any, **attrs: Any) -> Spec:
        shape = shapes.broadcast_shapes(*[x.shape for x in inputs if shapes.is_array(x)])
        dtype = dtypes.bool_.numpy if out == "bool" else common(inputs)
        return Spec(shape, dtype)

    def declare(kernel: Callable[..., Any]) -> Op:
        settings: dict[str, Any] = {
            "inplace": out != "bool",
            "common": computed if widens and out == "common" else common,
            "unpromoted": unpromoted,
            "keeps_dtype": out == "common" and not unpromoted,
        } | options
        guard = settings.pop("guard", None)
        declared = CATALOGUE.add(Op(kernel, rule, **settings))
        if guard is not None:
            declared.rule = _guarded(declared.rule, with_defaults(guard, declared))
        declared.pointwise = True
        return declared

    return declare


def _guarded(rule: Rule, guard: Rule) -> Rule:
    def guarded(*inputs: Any, **attrs: Any) -> Any:
        guard(*inputs, **attrs)
        return rule(*inputs, **attrs)

    return guarded


def composite(**options: Any) -> Callable[[Callable[..., Any]], Op]:
    """Declare an op that is composed of other ops: ``function(F, *inputs, **attrs)`` calls them on ``F``."""

    def declare(function: Callable[..., Any]) -> Op:
        return CATALOGUE.add(Op(function, _no_rule, composite=True, **options))

    return declare


def _no_rule(*_inputs: Any, **_attrs: Any) -> Any:
    raise TypeError("a composite op has no rule of its own")
