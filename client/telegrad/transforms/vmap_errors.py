"""Errors for calls that ``vmap`` does not support, with torch's texts."""

from __future__ import annotations

from typing import NoReturn

from telegrad_engine.errors import InvalidOperation, ShapeMismatch
from telegrad_engine.schema.op import Op

CONTROL_FLOW = (
    "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that "
    "yet, please file an issue at https://github.com/pytorch/pytorch/issues ."
)
ITEM = (
    "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, "
    "please try to rewrite what you're doing with other operations. If error is occurring somewhere inside PyTorch "
    "internals, please file a bug report."
)
NO_STORAGE = "Cannot access data pointer of Tensor that doesn't have storage"
RANDOM = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
    "randomness flags on vmap or perform the randomness operation out of vmap"
)
SAME_RANDOM = (
    "Vmap does not currently support same randomness with a batched tensor input. Please file an issue with functorch"
)
BACKWARD = (
    "backward() called inside a functorch transform. This is not supported, please use functorch.grad or functorch.vjp "
    "instead or call backward() outside of functorch transforms."
)
_INSIDE = (
    "You are attempting to call Tensor.{0}(){1} inside of a function being transformed by a functorch transform. This "
    "is unsupported, please attempt to use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call "
    "{0}() outside of a function being transformed instead."
)
REQUIRES_GRAD = _INSIDE.format("requires_grad_", " (or perhaps using torch.autograd.functional.* APIs)")
RETAIN_GRAD = _INSIDE.format("retain_grad", "")
SAME_MEMORY = (
    "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same randomness. "
    "If this is necessary for your usage, please file an issue with functorch."
)
ESCAPED = (
    "Either your tensor may have escaped from inside a function being vmapped and this is a user error (see "
    "https://pytorch.org/functorch/stable/ux_limitations.html), or there is an internal functorch error in "
    "`gen_vmap_plumbing` Please file an issue if it looks like the latter"
)
MASK = (
    "vmap: We do not support batching operators that can support dynamic shape. Attempting to batch over indexing "
    "with a boolean mask."
)
STATISTICS = (
    "Batch norm got a batched tensor as input while the running_mean or running_var, which will be updated in place, "
    "were not batched.\nIf you are using a module and do not need eval mode, please set `track_running_stats` to be "
    "False.If you are using a prebuilt module and do not need eval mode, please see the functorch website for "
    "resources on how to patch your module to work with vmap"
)

NO_RULE = "Batching rule not implemented for aten::{}. We could not generate a fallback."
REFUSED = {
    "allclose": (
        "vmap over torch.allclose isn't supported yet. Please file an issue at "
        "https://github.com/pytorch/pytorch/issues if you need this feature."
    ),
    "equal": NO_RULE.format("equal"),
    "tensor_split.tensor": NO_RULE.format("tensor_split.tensor_indices_or_sections"),
}
"""The ops that cannot be applied to batched tensors, with the error text."""
DYNAMIC = {
    "masked_select": (
        "vmap: Attempted to vmap over `mask` in torch.masked_select(self, mask) We cannot support this because for "
        "each batch this would return a differently shaped Tensor. Please file an issue at "
        "https://github.com/pytorch/pytorch/issues if you need this feature."
    ),
    "one_hot": ("When vmap-ing torch.nn.functional.one_hot, please provide an explicit positive num_classes argument."),
}
"""The error texts for ops with value-dependent output shapes, where torch's text differs from the general one."""
NORMS = frozenset({"batch_norm", "instance_norm"})
ARITHMETIC = frozenset({
    "copy", "div", "logical_and", "logical_or", "logical_xor", "masked_fill", "mul", "sub", "true_divide",
})  # fmt: skip
"""The in-place ops that torch calls "inplace arithmetic"."""
BY_NAME = frozenset({"fill", "index_add", "index_fill", "index_put", "scatter_add", "scatter_reduce"})
"""The in-place ops that torch's text names without their namespace."""


def refuse_dynamic_shape(op: Op) -> NoReturn:
    """Raise InvalidOperation for an op whose result's shape would differ between samples."""
    name = "_unique2" if op.key == "unique" else op.public
    raise InvalidOperation(
        DYNAMIC.get(
            op.key,
            "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over "
            f"aten::{name}. Please file an issue at https://github.com/pytorch/pytorch/issues if you need this "
            "feature.",
        )
    )


def refuse_mask(called: Op | None) -> NoReturn:
    """Raise InvalidOperation for a batched mask as an index; ``called`` is the user's op, None for indexing."""
    raise InvalidOperation(MASK if called is None else DYNAMIC.get(called.key, MASK))


def refuse_to_write(op: Op, called: Op, shape: tuple[int, ...], size: int, level: int) -> NoReturn:
    """Raise an error for an in-place op that would write different values per sample to a tensor shared by all samples.

    ``called`` is the op that the user called: ``op`` itself or one that consists of it.
    """
    if called.key in NORMS:
        raise InvalidOperation(STATISTICS)
    if op.key in ("add", "atan2"):
        raise ShapeMismatch(f"output with shape {list(shape)} doesn't match the broadcast shape {[size, *shape]}")
    name, where = f"aten::{op.name}_", f"at level {level}"
    if op.key in ARITHMETIC | BY_NAME:
        name, where = "inplace arithmetic" if op.key in ARITHMETIC else f"{op.name}_", "in a vmap"
    raise InvalidOperation(
        f"vmap: {name}(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has "
        "more elements than `self`. This happened due to `other` being vmapped over but `self` not being vmapped over "
        f"{where}. Please try to use out-of-place operators instead of {name}. If said operator is being called inside "
        "the PyTorch framework, please file a bug report instead."
    )
