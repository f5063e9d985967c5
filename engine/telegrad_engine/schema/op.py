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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypedDict, Unpack

from .. import shapes
from ..errors import InvalidArgument, UnknownOp
from ..lru import LRU
from ..shapes import Spec
from .declaration import (
    CHECKED,
    DEFAULT_MEMORY,
    DERIVED,
    FUNCTION,
    INPLACE,
    INPLACE_ARGUMENT,
    LINALG_FUNCTION,
    METHOD,
    METHOD_OF_TORCH,
    NN_FUNCTION,
    PRIVATE,
    RESULT,
    Batching,
    MemoryUse,
    Overlap,
    Results,
    Variants,
)
from .derivative_plan import DerivativePlan, Rule, plan_derivative
from .descriptions import RETURNS, describe
from .promotion import COMMON, UNCAST, Autocast, Promotion
from .signature import Signature, given, parameter_names, read_params

PLANS = 256
"""The number of most recently used plans that an op caches. Each combination of inputs that require grad has one."""
NO_ATTRS: Mapping[str, Any] = {}

PREFIXES = {"torch.linalg": "linalg_"}
"""The prefix of the op keys of a namespace, which separates torch.linalg.norm from torch.norm."""

FUNCTIONAL = "functional_"
"""The prefix of torch.nn.functional functions that differ from the tensor method of the same name, such as unfold."""


FUNCTIONS = FUNCTION | LINALG_FUNCTION | NN_FUNCTION


class Op(Signature):
    """A declared operation; its attributes are derived from the declaration (see the module's docstring)."""

    pointwise = False
    """Whether each element of the result depends on one element of each broadcast input."""

    def __init__(
        self,
        kernel: Callable[..., Any],
        rule: Rule | None,
        *,
        key: str | None = None,
        aliases: Sequence[str] = (),
        variants: Variants = FUNCTION | METHOD,
        node: str | Callable[[Any], str] | None = None,
        results: Results = RESULT,
        memory: MemoryUse = DEFAULT_MEMORY,
        promotion: Promotion | None = None,
        may_raise: bool = False,
        overlap: Overlap = CHECKED,
        autocast: Autocast = UNCAST,
        batching: Batching = DERIVED,
        calls: str = "",
        prepare: Rule | None = None,
    ) -> None:
        self.random = parameter_names(kernel)[1:2] == ("rng",)
        self.namespace = _namespace(variants)
        prefix = PREFIXES.get(self.namespace, "")
        self.key = prefix + (key or kernel.__name__.removesuffix("_"))
        super().__init__(self.key.split(".")[0], read_params(kernel, skip=1 + self.random))
        self.public = self.name.removeprefix(prefix or FUNCTIONAL)
        """The op's name in its namespace."""
        self.raw = kernel
        self.module = kernel.__module__
        self.kernel = _by_position(kernel, self, self.random)
        self.composite = rule is None
        """Whether the kernel calls other ops, on a namespace ``F``."""
        self.rule = _no_rule if rule is None else _filled(rule, self)
        self.aliases = tuple(aliases)
        self.functional = variants >= NN_FUNCTION
        """Whether torch.nn.functional has the op; with ``takes_inplace``, the function has a parameter ``inplace``."""
        self.takes_inplace = variants >= INPLACE_ARGUMENT
        self.method = variants >= METHOD and bool(self.tensor_params)
        self.method_of_torch = variants >= METHOD_OF_TORCH - METHOD
        """Whether torch has only the method."""
        self.inplace = variants >= INPLACE
        self.internal = variants.isdisjoint(FUNCTIONS)
        """Whether it is used only by other ops or tensor methods, and is not a function of torch."""
        self.private = variants >= PRIVATE
        self.node = node
        self.outputs = results.outputs
        self.lists_outputs = results.listed
        self.factory = results.new
        self.truth = results.truth
        self.constants = frozenset(self.outputs.index(name) for name in results.constants)
        """The floating outputs that have no derivative, by position."""
        self.hidden = results.hidden
        self.hidden_rule = None if results.hidden_rule is None else _filled(results.hidden_rule, self)
        self.calls = calls
        """The function of an array library that the kernel is with default attributes, by name; "" if it does more."""
        self.prepare = None if prepare is None else with_defaults(_by_position(prepare, self, False), self)
        """``prepare(xp, *inputs, **attrs)`` returns the kernel for inputs of the same shapes and dtypes."""
        self.scratch = _filled(memory.scratch, self) if callable(memory.scratch) else memory.scratch
        if calls and memory is DEFAULT_MEMORY:
            self.scratch = 0.0  # a single call that writes the result directly
        self.blocked, self.view = memory.blocked, memory.view
        self.may_copy, self.strict_view = memory.may_copy, memory.strict
        self.may_alias, self.repeats = memory.may_alias, memory.repeats
        self.overlap = overlap
        self.autocast, self.batching = autocast, batching
        self.promotion = promotion
        self.common = None if promotion is None else promotion.computed()
        self.unpromoted = 0 if promotion is None else promotion.unpromoted
        self.nondifferentiable_inputs: Callable[..., Sequence[str]] | None = None
        """A function of the attributes that returns the names of the inputs whose gradient is None, as in torch."""
        self.value_check: Rule | None = None
        """``value_check(xp, *inputs, **attrs)`` raises the kernel's errors about the values of the inputs at the
        positions ``checked``; it needs only the shapes of the other inputs."""
        self.checked: tuple[int, ...] = ()
        self.warning: Callable[..., str | None] | None = None
        """What torch.nn.functional warns of: a function of a call's arguments that returns the text, or None."""
        self.may_raise = may_raise
        """Whether the kernel may raise an error because of its inputs' values, as opposed to shapes and dtypes."""
        self.rules: dict[str, Rule] = {}
        self.joint_rule: Rule | None = None
        self.differentiable = self.composite
        """Whether any input has a derivative."""
        self.plans: LRU[Any, DerivativePlan] = LRU(PLANS)
        self.has_lists = any(p.is_list for p in self.tensor_params)
        self.has_names = len(self.outputs) > 1
        """Whether the results form torch's named tuple."""

    def kernel_for(self, xp: Any, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """The kernel for inputs like these as a function of them alone, with fewer steps; None if there is none."""
        if self.prepare is not None:
            found: Callable[..., Any] | None = self.prepare(xp, *inputs, **attrs)
            return found
        return getattr(xp, self.calls) if self.calls and not attrs else None

    @property
    def keys(self) -> tuple[str, ...]:
        """The key and the name, which overloads share."""
        return self.key, self.name

    @property
    def torch_name(self) -> str:
        """Torch's name of the function or, for an internal op, of the in-place method; "" if torch has neither."""
        if self.internal:
            return f"torch.Tensor.{self.name}_" if self.inplace else ""
        if self.method_of_torch:
            return f"torch.Tensor.{self.name}" if self.method else f"torch.Tensor.__{self.name}__"
        return f"{self.namespace}.{self.public}"

    @cached_property
    def returns(self) -> str:
        """The shapes and dtypes of the results."""
        if not self.pointwise or self.promotion is None:
            return describe(self.module, self.keys, RETURNS)
        *rest, last = [f"``{param.name}``" for param in self.tensor_params]
        shape = f"the broadcast shape of {', '.join(rest)} and {last}" if rest else f"the shape of {last}"
        return f"A tensor of {shape}. Its dtype is {self.promotion.words}."

    @cached_property
    def doc(self) -> str:
        """The kernel's docstring."""
        return inspect.getdoc(self.raw) or ""

    @cached_property
    def named_tuple(self) -> Any:
        """The named tuple type of several results."""
        make: Any = namedtuple  # Any, because type checkers require literal field names
        fields = make("fields", self.outputs)
        made = type(self.name, (_Results, fields), {"__slots__": (), "__module__": "telegrad.return_types"})
        return self.__dict__.setdefault("_named_tuple", made)  # one for all threads

    def __repr__(self) -> str:
        return f"<op {self.signature}>"

    def bundle(self, outputs: Sequence[Any]) -> Any:
        """Return the outputs in the form of the public API: one tensor, a tuple, or torch's named tuple."""
        if self.has_names:
            return self.named_tuple(*outputs)
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

    def without_gradient(self, names: Callable[..., Sequence[str]]) -> None:
        """Declare that the inputs with the names that ``names(**attrs)`` returns have the gradient None."""
        self.nondifferentiable_inputs = with_defaults(names, self)

    def warns(self, warning: Callable[..., str | None]) -> None:
        """Declare what torch.nn.functional warns of; see ``warning``."""
        self.warning = warning

    def checks(self, *names: str) -> Callable[[Rule], Rule]:
        """Declare a check of these inputs' values that raises the kernel's errors without running the kernel."""
        positions = tuple([i for i, p in enumerate(self.tensor_params) if p.name in names])

        def declare(check: Rule) -> Rule:
            self.value_check, self.checked, self.may_raise = with_defaults(check, self), positions, True
            return check

        return declare

    # Recording ---------------------------------------------------------------------------

    def plan(self, needs: tuple[Any, ...]) -> DerivativePlan:
        """Return the plan for the case that the inputs flagged in ``needs`` require grad.

        ``needs`` has a bool per tensor parameter, or a tuple of bools for a list of tensors.
        """
        try:
            return self.plans[needs]
        except KeyError:
            plan = self.plans[needs] = plan_derivative(self, needs)
            return plan

    def edges_without_gradient(self, attrs: Mapping[str, Any]) -> Sequence[int]:
        """The edges of a node with these attributes that carry no gradient, even if their inputs require grad."""
        if self.nondifferentiable_inputs is None:
            return ()
        names = self.nondifferentiable_inputs(**attrs)
        return [i for i, p in enumerate(self.tensor_params) if p.name in names]


ViewStep = tuple[Op, Any, int]
"""A step of a chain of view ops: an op, its attributes and the number of its output."""


def _namespace(variants: Variants) -> str:
    """The module of torch that has the function; that of an internal op is torch itself."""
    if variants >= NN_FUNCTION and not variants >= FUNCTION:
        return "torch.nn.functional"
    return "torch.linalg" if variants >= LINALG_FUNCTION else "torch"


class _Results:
    """A mixin that gives a named tuple of outputs the repr of torch's ``return_types``."""

    _fields: tuple[str, ...]

    def __repr__(self) -> str:
        parts = ",\n".join([f"{field}={getattr(self, field)!r}" for field in self._fields])
        return f"telegrad.return_types.{type(self).__name__}(\n{parts})"


def _by_position(function: Callable[..., Any], op: Op, random: bool, leading: int = 1) -> Callable[..., Any]:
    """Wrap ``function`` to take its tensors by position, even if its signature does not list all tensors first."""
    if op.tensors_first:
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


def follow_views(value: Any, chain: Iterable[ViewStep], apply: Callable[[Op, Any, Any], Any]) -> Any:
    """Return what a chain of view ops makes of a value; ``apply(op, value, attrs)`` applies one."""
    for op, attrs, index in chain:
        value = apply(op, value, attrs)
        if isinstance(value, (tuple, list)):
            value = value[index]
    return value


def follow_arrays(xp: Any, array: Any, chain: Iterable[ViewStep]) -> Any:
    """Return what a chain of view ops makes of an array of the library ``xp``."""
    return follow_views(array, chain, lambda op, x, attrs: op.kernel(xp, x, **attrs))


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

    near = sorted(difflib.get_close_matches(name, known, n=3), key=lambda key: not name.startswith(key))
    hint = f"; did you mean {', '.join(near)}?" if near else "; GET /v1/ops lists all of them"
    return UnknownOp(f"unknown op {name!r:.80}{hint}", op=name[:80])


CATALOGUE = Catalogue()


# Families: decorators that supply the shape rule, promotion and in-place form ----------------


class Options(TypedDict, total=False):
    """The options of all declarations; see :class:`Op`."""

    key: str
    aliases: Sequence[str]
    variants: Variants
    node: str | Callable[[Any], str]
    results: Results
    memory: MemoryUse
    may_raise: bool
    overlap: Overlap
    autocast: Autocast
    batching: Batching
    calls: str
    prepare: Rule


def op(
    rule: Rule, *, promotion: Promotion | None = None, **options: Unpack[Options]
) -> Callable[[Callable[..., Any]], Op]:
    """Declare an op with its own shape rule: ``rule(*inputs, **attrs)`` returns a Spec or a list of Specs."""

    def declare(kernel: Callable[..., Any]) -> Op:
        return CATALOGUE.add(Op(kernel, rule, promotion=promotion, **options))

    return declare


def elementwise(
    *, guard: Rule | None = None, promotion: Promotion = COMMON, **options: Unpack[Options]
) -> Callable[[Callable[..., Any]], Op]:
    """Declare an op that broadcasts its inputs; ``guard(*inputs, **attrs)`` raises for unsuitable ones.

    Unless told otherwise, an op whose result has the inputs' common dtype also has an in-place method.
    """
    result = promotion.result()
    if not promotion.to_bool:
        options = {"variants": FUNCTION | METHOD | INPLACE, **options}

    def rule(*inputs: Any, **attrs: Any) -> Spec:
        shape = shapes.broadcast_shapes(*[x.shape for x in inputs if shapes.is_array(x)])
        return Spec(shape, result(inputs))

    def declare(kernel: Callable[..., Any]) -> Op:
        declared = CATALOGUE.add(Op(kernel, rule, promotion=promotion, **options))
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


def composite(**options: Unpack[Options]) -> Callable[[Callable[..., Any]], Op]:
    """Declare an op that is composed of other ops: ``function(F, *inputs, **attrs)`` calls them on ``F``."""

    def declare(function: Callable[..., Any]) -> Op:
        return CATALOGUE.add(Op(function, None, **options))

    return declare


def _no_rule(*_inputs: Any, **_attrs: Any) -> Any:
    raise TypeError("a composite op has no rule of its own")
