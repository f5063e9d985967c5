"""The function transforms ``grad``, ``vjp``, ``jvp``, Jacobians and Hessians."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from telegrad_engine.errors import InvalidOperation, InvalidValue, ShapeMismatch
from telegrad_engine.graph.differentiation import place
from telegrad_engine.graph.node import walk
from telegrad_engine.transforms.forward_ad import check_floating
from telegrad_engine.transforms.tangents import check_size

from ..autograd.pullback import Arguments, Outputs, Pullback
from ..pytree import described, tree_flatten, tree_map, tree_unflatten, treespec_pprint
from ..tensor.handle import Tensor, functions
from .vectorized_map import check_randomness

ArgNums = int | tuple[int, ...]
VJP, JVP = "vjp(f, *primals)", "jvp(f, primals, tangents)"
"""The names of these functions in torch's error texts, which Jacobians also use."""


# Arguments and outputs -------------------------------------------------------------------------------


class _Chosen:
    """The arguments of a call, with new tensors in place of the differentiated ones. Arguments may be pytrees."""

    def __init__(self, args: tuple[Any, ...], argnums: Any, forward: bool = False) -> None:
        self.single = isinstance(argnums, int)
        numbers = _checked(argnums, len(args))
        chosen = args[numbers[0]] if self.single else tuple([args[i] for i in numbers])
        self.leaves, self.spec = tree_flatten(chosen)
        if forward:
            for leaf in self.leaves:
                if isinstance(leaf, Tensor):
                    check_floating("primal", leaf)
        self.arguments = Arguments(self.leaves)
        anew = tree_unflatten(self.arguments.tensors, self.spec)
        self.args = list(args)
        for i, value in zip(numbers, (anew,) if self.single else anew, strict=True):
            self.args[i] = value

    def nested(self, values: Sequence[Any]) -> Any:
        """Return the values, one per leaf, in the structure of the chosen arguments."""
        return tree_unflatten(values, self.spec)


def _checked(argnums: Any, count: int) -> tuple[int, ...]:
    """The positions in ``argnums``, as non-negative numbers. Raises InvalidOperation for invalid ones."""
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    if not isinstance(numbers, tuple):
        raise InvalidOperation(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    for number in numbers:
        if not isinstance(number, int):
            raise InvalidOperation(f"argnum must be int, got: {type(number)}")
        if not -count <= number < count:
            raise InvalidOperation(f"Got argnum={number}, but only {count} positional inputs")
    positions = tuple([number % count for number in numbers])
    if not positions:
        raise InvalidOperation("argnums must be non-empty")
    if len(set(positions)) != len(positions):
        raise InvalidOperation(f"argnums elements must be unique, got {positions}")
    return positions


def _with_aux(result: Any, what: str) -> tuple[Any, Any]:
    if not (isinstance(result, tuple) and len(result) == 2):
        raise InvalidOperation(f"{what}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return result


class _Evaluated:
    """A function evaluated on new arguments, with its outputs ready to be differentiated."""

    def __init__(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Any, arguments: Arguments, has_aux: bool, what: str
    ) -> None:
        with arguments.differentiated():
            self.result, self.aux = func(*args, **kwargs), None
            if has_aux:
                self.result, self.aux = _with_aux(self.result, what)
            leaves, self.spec = tree_flatten(self.result)
            if not leaves or (len(leaves) == 1 and leaves[0] is None):
                raise InvalidOperation(
                    f"{what}: Expected f to be a function that has non-empty output (got output = {leaves})"
                )
            for leaf in leaves:
                if not isinstance(leaf, Tensor):
                    raise InvalidOperation(
                        f"{what}: expected f(*primals) to return only tensors, got unsupported type {type(leaf)}"
                    )
            self.outputs = Outputs(arguments, leaves)
        self.has_aux = has_aux

    def value(self) -> Any:
        """Return the function's result as the transform's caller gets it."""
        return tree_map(self.outputs.outward, self.result)

    def with_aux(self, *results: Any) -> Any:
        """Return a transform's results, followed by the function's auxiliary output if it has one."""
        if self.has_aux:
            results = (*results, tree_map(self.outputs.outward, self.aux))
        return results if len(results) > 1 else results[0]


# Gradients ---------------------------------------------------------------------------------------------


def grad_and_value(func: Callable[..., Any], argnums: ArgNums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that computes the gradient of ``func``, which returns one number, and that number.

    The arguments and the result are as in :func:`grad`; with ``has_aux`` the second result is ``(value, aux)``.

    ``argnums`` is the position, or a tuple of positions.

    Examples:
        >>> tg.func.grad_and_value(lambda x: (x**3).sum())(tg.tensor([1.0, 2.0]))
        (tensor([ 3., 12.]), tensor(9.))
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        chosen = _Chosen(args, argnums)
        aux = None
        with chosen.arguments.differentiated():
            value = func(*chosen.args, **kwargs)
            if has_aux:
                value, aux = _with_aux(value, "grad_and_value(f)(*args)")
            if not isinstance(value, Tensor):
                raise InvalidOperation(
                    f"grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got {type(value)}"
                )
            if value.dim() != 0:
                raise InvalidOperation(
                    "grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor with "
                    f"{value.dim()} dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
                )
            outputs = Outputs(chosen.arguments, [value])
        gradients = chosen.nested(outputs.pull(None, False))
        value = outputs.outward(value)
        return (gradients, (value, tree_map(outputs.outward, aux))) if has_aux else (gradients, value)

    return wrapper


def grad(func: Callable[..., Any], argnums: ArgNums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that computes the gradient of ``func``, which returns one number, by the arguments ``argnums``.

    The gradient has the structure of the argument, which may be a pytree, or is a tuple for several arguments. With
    ``has_aux`` ``func`` returns ``(value, aux)``, and the result is ``(gradient, aux)``. Raises RuntimeError for
    invalid positions and for a result that is not a 0-dim tensor.

    Examples:
        >>> tg.func.grad(lambda x: (x**3).sum())(tg.tensor([1.0, 2.0]))
        tensor([ 3., 12.])
        >>> tg.func.grad(tg.func.grad(tg.sin))(tg.tensor(0.0))
        tensor(-0.)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        gradients, value = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return wrapper


# Products ----------------------------------------------------------------------------------------------


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return ``func(*primals)`` and a function that multiplies cotangents, shaped like the result, with the Jacobian.

    That function returns a tuple with one result per primal, and can be called repeatedly.

    ``primals`` are the arguments; with ``has_aux``, ``func`` returns a pair, whose second part is returned as it is.

    Examples:
        >>> value, product = tg.func.vjp(lambda x: x * x, tg.tensor([1.0, 2.0]))
        >>> product(tg.tensor([1.0, 0.0]))
        (tensor([2., 0.]),)
    """
    leaves, spec = tree_flatten(primals)
    arguments = Arguments(leaves)
    evaluated = _Evaluated(func, tree_unflatten(arguments.tensors, spec), {}, arguments, has_aux, VJP)
    outputs, out_spec = evaluated.outputs, evaluated.spec

    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given, given_spec = tree_flatten(cotangents)
        if given_spec != out_spec:
            raise InvalidOperation(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {treespec_pprint(given_spec)}, primal output: {treespec_pprint(out_spec)}"
            )
        for i, (cotangent, output) in enumerate(zip(given, outputs.tensors, strict=True)):
            if not isinstance(cotangent, Tensor):
                raise TypeError(f"gradients can be either Tensors or None, but got {type(cotangent).__name__}")
            if cotangent.shape != output.shape:
                raise ShapeMismatch(
                    f"Mismatch in shape: grad_output[{i}] has a shape of {cotangent.shape} and output[{i}] has a shape "
                    f"of {output.shape}."
                )
        return tree_unflatten(outputs.pull(given, retain_graph, bool(create_graph)), spec)

    return evaluated.with_aux(evaluated.value(), vjp_fn)


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """Return ``func(*primals)`` and its Jacobian's product with ``tangents``.

    ``primals`` is a tuple, and ``tangents`` has its structure. With ``strict``, an output that does not depend on the
    primals raises an error; otherwise its tangent is zeros.

    With ``has_aux``, ``func`` returns a pair, whose second part is returned as it is.

    Examples:
        >>> tg.func.jvp(lambda x: x * x, (tg.tensor([1.0, 2.0]),), (tg.tensor([1.0, 0.0]),))
        (tensor([1., 4.]), tensor([2., 0.]))
    """
    if not isinstance(primals, tuple):
        raise InvalidOperation(f"{JVP}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    leaves, spec = tree_flatten(primals)
    given, given_spec = tree_flatten(tangents)
    if spec != given_spec:
        raise InvalidOperation(
            f"{JVP}: Expected primals and tangents to have the same python structure. For example, if primals is a "
            "tuple of 3 tensors, tangents also must be. Got primals with structure "
            f"{described(spec)} and tangents with structure {described(given_spec)}"
        )
    _check_duals(leaves, given)
    arguments = Arguments(leaves)
    evaluated = _Evaluated(func, tree_unflatten(arguments.tensors, spec), {}, arguments, has_aux, JVP)
    outputs = evaluated.outputs
    if strict and not all(_depends(raw, arguments) for raw in outputs.raws):
        raise InvalidOperation(
            "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not "
            "allowed with strict=True."
        )
    pushed = tree_unflatten(Pullback(outputs).push(given, False), evaluated.spec)
    return evaluated.with_aux(evaluated.value(), pushed)


def _depends(raw: Tensor, arguments: Arguments) -> bool:
    if any(raw is own for own in arguments.raws):
        return True
    if raw.grad_fn is None:
        return False
    nodes = {place(own)[0] for own in arguments.raws}
    return any(node in nodes or not nodes.isdisjoint(node.next_edges) for node in walk(raw.grad_fn))


def _check_duals(primals: Sequence[Any], tangents: Sequence[Any]) -> None:
    """Raise an error unless the tangents match their primals."""
    for what, values in (("primals", primals), ("tangents", tangents)):
        if not values:
            raise InvalidOperation(f"{JVP}: Expected {what} to contain at least one Tensor.")
        for value in values:
            if not isinstance(value, Tensor):
                raise InvalidOperation(f"{JVP}: Expected {what} to only contain Tensors, got {type(value)}")
    for primal, tangent in zip(primals, tangents, strict=True):
        check_floating("primal", primal)
        check_floating("tangent", tangent)
        check_size(primal, tangent)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return ``func(*primals)`` and a function that multiplies tangents with its Jacobian at that point.

    ``func`` is evaluated once, however often the returned function is called.

    ``primals`` are the arguments.

    Examples:
        >>> value, product = tg.func.linearize(lambda x: x * x, tg.tensor([1.0, 2.0]))
        >>> product(tg.tensor([1.0, 0.0]))
        tensor([2., 0.])
    """
    leaves, spec = tree_flatten(primals)
    arguments = Arguments(leaves)
    what = "linearize(f, *primals)"
    evaluated = _Evaluated(func, tree_unflatten(arguments.tensors, spec), {}, arguments, False, what)
    pullback = Pullback(evaluated.outputs)

    def jvp_fn(*tangents: Any) -> Any:
        given, given_spec = tree_flatten(tangents)
        if given_spec != spec:
            raise InvalidOperation(
                f"Expected the tangents {described(given_spec)} to have the same argspec as the primals "
                f"{described(spec)}"
            )
        for i, (tangent, primal) in enumerate(zip(given, leaves, strict=True)):
            if tangent.shape != primal.shape:
                raise ShapeMismatch(
                    f"tangent:{i} with shape {tangent.shape} in flattened pytree doesn't match the shape "
                    f"{primal.shape} of the corresponding primal."
                )
            if tangent.dtype != primal.dtype:
                raise InvalidOperation(
                    f"tangent:{i} with dtype {tangent.dtype} in flattened pytree doesn't match the dtype "
                    f"{primal.dtype} of the corresponding primal."
                )
        return tree_unflatten(pullback.push(given, True), evaluated.spec)

    return evaluated.value(), jvp_fn


# Jacobians and Hessians ----------------------------------------------------------------------------------


def jacrev(
    func: Callable[..., Any],
    argnums: ArgNums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of ``func`` row by row: ``(*output.shape, *input.shape)``.

    For pytrees, the result has the outputs' structure with the inputs' structure at each leaf. ``chunk_size`` is the
    maximum number of rows computed together.

    ``argnums`` is the position of the argument, or a tuple of positions; ``has_aux`` is as in ``grad``.

    Examples:
        >>> tg.func.jacrev(lambda x: x * x)(tg.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise InvalidValue("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        chosen = _Chosen(args, argnums)
        evaluated = _Evaluated(func, chosen.args, kwargs, chosen.arguments, has_aux, VJP)
        blocks = []
        for i, output in enumerate(evaluated.outputs.tensors):
            rows = evaluated.outputs.pull_basis(i, chunk_size)
            blocks.append(
                chosen.nested([r.reshape((*output.shape, *x.shape)) for r, x in zip(rows, chosen.leaves, strict=True)])
            )
        return evaluated.with_aux(tree_unflatten(blocks, evaluated.spec))

    return wrapper


def jacfwd(
    func: Callable[..., Any], argnums: ArgNums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of ``func`` column by column; otherwise like :func:`jacrev`.

    ``func`` is evaluated once, so all columns see the same random numbers, and ``randomness`` has no effect.

    Examples:
        >>> tg.func.jacfwd(lambda x: x * x)(tg.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        check_randomness(randomness)
        chosen = _Chosen(args, argnums, forward=True)
        evaluated = _Evaluated(func, chosen.args, kwargs, chosen.arguments, has_aux, JVP)
        pullback = Pullback(evaluated.outputs)
        columns = [pullback.push_basis(j) for j in range(len(chosen.leaves))]
        blocks = []
        for i, output in enumerate(evaluated.outputs.tensors):
            block = []
            for found, x in zip(columns, chosen.leaves, strict=True):
                shape = (*output.shape, *x.shape)
                if found is None:
                    block.append(functions.new_zeros(output.detach(), shape))
                else:
                    block.append(functions.movedim(found[i], 0, -1).reshape(shape))
            blocks.append(chosen.nested(block))
        return evaluated.with_aux(tree_unflatten(blocks, evaluated.spec))

    return wrapper


def hessian(func: Callable[..., Any], argnums: ArgNums = 0) -> Callable[..., Any]:
    """Return a function that computes the Hessian of ``func``: ``(*output.shape, *input.shape, *input.shape)``.

    ``argnums`` is the position of the argument, or a tuple of positions.

    Examples:
        >>> tg.func.hessian(lambda x: (x**3).sum())(tg.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    return jacrev(jacrev(func, argnums), argnums)
