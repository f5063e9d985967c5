"""``backward`` and ``grad``: they check their arguments, run the backward pass and return or store its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from ..errors import GradRequired, InvalidOperation, InvalidValue, ShapeMismatch
from ..shapes import Spec, torch_size
from . import node_evaluation
from .backward_pass import run
from .node import accumulator, walk

Endpoint = tuple[Any, int]
"""Where a gradient arrives: a node and an output number."""
Root = tuple[Any, int, Any]
"""Where a pass starts: a place and the gradient that is sent to it."""


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Accumulate the sum of the tensors' gradients into the leaves, or into ``inputs`` alone.

    ``grad_tensors`` has one entry per tensor, which may be None for a tensor of one element. Raises torch's errors for
    tensors that do not require grad, shapes that do not match and freed graphs.
    """
    tensors, inputs = listed(tensors), None if inputs is None else listed(inputs)
    if tensors or inputs == []:  # torch raises no error for no tensors either
        Derivation.of_backward(tensors, grad_tensors, retain_graph, create_graph, inputs).run()


def _leads_to(node: Any, places: Sequence[Endpoint]) -> bool:
    """Whether a pass for the gradients at these places continues past ``node``."""
    ends = {target for target, _ in places}
    return any(target in ends for reached in walk(node) for target in reached.next_edges)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Return the gradients of ``outputs`` with respect to ``inputs``, without changing ``.grad``.

    There is one tensor per input, with its shape and dtype. For an unused input it is None with ``allow_unused``, or
    zeros with ``materialize_grads``.
    """
    return Derivation.of_grad(
        outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads
    ).run()


class Derivation(NamedTuple):
    """A checked call of ``backward`` or ``grad``: the arguments of its pass, and the function that ends it."""

    roots: list[Root]
    values: Any
    keep_graph: bool
    wanted: list[Endpoint] | None
    stores: bool
    """Whether captured gradients of leaves are accumulated, as for ``backward`` with ``inputs``."""
    width: int
    """The number of results that ``finish`` returns."""
    finish: Callable[[dict[Endpoint, Any]], tuple[Any, ...]]
    """Returns the results from the captured gradients; it runs inside ``values``."""

    @classmethod
    def of_backward(
        cls, tensors: Any, gradients: Any, retain_graph: bool | None, create_graph: bool, inputs: Any
    ) -> Self:
        """Check and prepare ``backward`` with these arguments. Raises the errors that it raises before its pass."""
        if inputs is not None:
            inputs = listed(inputs)
            if not inputs:
                raise InvalidOperation("`inputs` argument to `backward()` cannot be empty.")
            for tensor in inputs:
                if not tensor.requires_grad:
                    raise GradRequired("One of the differentiated Tensors does not require grad")
        tensors = listed(tensors)
        if hasattr(gradients, "_data"):
            gradients = [gradients]
        values = tensors[0]._values(create_graph)
        roots = _roots(tensors, gradients, values, create_graph)
        keep = create_graph if retain_graph is None else retain_graph
        wanted = None if inputs is None else [place(t) for t in inputs]
        for tensor in inputs or ():
            tensor.retain_grad()  # as in torch, this gives a non-leaf its gradient

        def finish(captured: dict[Endpoint, Any]) -> tuple[Any, ...]:
            for node, output_nr in wanted or ():  # run the hooks of the nodes where the pass ended
                found = (node, output_nr) in captured and node.hooks is not None
                if found and node.hooks.surround and not _leads_to(node, wanted or ()):
                    node_evaluation.end(values, node, output_nr, captured[node, output_nr])
            return ()

        return cls(roots, values, keep, wanted, inputs is not None, 0, finish)

    @classmethod
    def of_grad(
        cls,
        outputs: Any,
        inputs: Any,
        grad_outputs: Any,
        retain_graph: bool | None,
        create_graph: bool,
        allow_unused: bool | None,
        materialize_grads: bool,
    ) -> Self:
        """Check and prepare ``grad`` with these arguments. Raises the errors that it raises before its pass."""
        outputs, inputs, grad_outputs, values = check_grad(
            outputs, inputs, grad_outputs, create_graph, allow_unused, materialize_grads
        )
        roots = _roots(outputs, grad_outputs, values, create_graph)
        keep = create_graph if retain_graph is None else retain_graph
        wanted = [place(t) for t in inputs]

        def finish(captured: dict[Endpoint, Any]) -> tuple[Any, ...]:
            results = [values.wrap(captured[target]) if target in captured else None for target in wanted]
            return completed(inputs, results, create_graph, allow_unused, materialize_grads)

        return cls(roots, values, keep, wanted, False, len(inputs), finish)

    def run(self) -> tuple[Any, ...]:
        """Run the pass, and return its results."""
        values = self.values
        with values:
            captured = run(
                self.roots,
                values,
                keep_graph=self.keep_graph,
                wanted=self.wanted,
                accumulate=values.accumulate,
                stores=self.stores,
            )
            return self.finish(captured)


def check_grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any,
    create_graph: bool,
    allow_unused: bool | None,
    materialize_grads: bool,
) -> tuple[list[Any], list[Any], Any, Any]:
    """Check the arguments of ``grad``; return them as lists, with the ``Values`` that the pass computes with."""
    outputs, inputs = listed(outputs), listed(inputs)
    if not inputs:
        raise InvalidOperation("`inputs` argument to `grad()` cannot be empty.")
    if grad_outputs is None or hasattr(grad_outputs, "_data"):
        grad_outputs = [grad_outputs]
        if grad_outputs == [None]:
            grad_outputs = [None] * len(outputs)
    if allow_unused is False and materialize_grads:
        raise InvalidValue(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    values = (outputs or inputs)[0]._values(create_graph)
    for tensor in inputs:
        if not tensor.requires_grad:
            raise GradRequired("One of the differentiated Tensors does not require grad")
    return outputs, inputs, grad_outputs, values


def completed(
    inputs: Sequence[Any], results: list[Any], create_graph: bool, allow_unused: bool | None, materialize_grads: bool
) -> tuple[Any, ...]:
    """Return the results of ``grad``, where None stands for an unused input, with zeros for it if they are wanted.

    Raises GradRequired for an unused input that is not allowed.
    """
    for index, (tensor, result) in enumerate(zip(inputs, results, strict=True)):
        if result is None and materialize_grads:
            results[index] = tensor._zeros_like().requires_grad_(create_graph)
        elif result is None and not allow_unused:
            raise GradRequired(
                f"The differentiated Tensor at index {index} appears to not have been used in the graph. "
                "Set allow_unused=True if this is the desired behavior."
            )
    return tuple(results)


def listed(tensors: Any) -> list[Any]:
    """One tensor, or several, as a list."""
    return [tensors] if hasattr(tensors, "_data") else list(tensors)


def place(tensor: Any) -> Endpoint:
    """Where a tensor's gradient arrives: its node and output number."""
    tensor._refresh()
    return (accumulator(tensor), 0) if tensor._node is None else (tensor._node, tensor._output_nr)


def node_at(tensor: Any, path: Sequence[int]) -> Any:
    """Return the node at the end of a path of edges from a tensor. Raises InvalidValue if there is none."""
    found = place(tensor)[0]
    for edge in path:
        if not 0 <= edge < len(found.next_edges) or found.next_edges[edge] is None:
            raise InvalidValue(f"no node is at the end of the path {list(path)!r:.60}")
        found = found.next_edges[edge]
    return found


def spec_of(node: Any, output_nr: int) -> Spec:
    """Return the shape and dtype of one of a node's outputs. Raises InvalidValue if it has no such output."""
    specs = node.specs if node.many else [(node.shape, node.dtype)]
    if not 0 <= output_nr < len(specs) or specs[output_nr] is None:
        raise InvalidValue(f"{node.name()} has no output {output_nr}")
    return Spec(*specs[output_nr])


def _roots(tensors: Sequence[Any], gradients: Sequence[Any] | None, values: Any, create_graph: bool) -> list[Root]:
    if gradients is None:
        gradients = [None] * len(tensors)
    if len(gradients) != len(tensors):
        raise InvalidOperation(f"got {len(tensors)} tensors and {len(gradients)} gradients")
    roots = []
    for index, (tensor, gradient) in enumerate(zip(tensors, gradients, strict=True)):
        gradient = _check_gradient(tensor, gradient, index)
        if not tensor.requires_grad:
            raise GradRequired(f"element {index} of tensors does not require grad and does not have a grad_fn")
        roots.append((*place(tensor), values.seed(tensor, gradient)))
    return roots


def _check_gradient(tensor: Any, gradient: Any, index: int) -> Any:
    if gradient is None:
        if tensor.requires_grad and tensor.numel() != 1:
            raise GradRequired("grad can be implicitly created only for scalar outputs")
        return None
    if not hasattr(gradient, "_data"):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(gradient).__name__}")
    if gradient._data.shape != tensor._data.shape:
        raise ShapeMismatch(
            f"Mismatch in shape: grad_output[{index}] has a shape of {torch_size(gradient.shape)} and "
            f"output[{index}] has a shape of {torch_size(tensor.shape)}."
        )
    if not gradient.is_floating_point():
        return gradient.to(dtype=tensor.dtype)
    return gradient
