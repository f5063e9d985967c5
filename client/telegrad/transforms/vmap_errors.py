"""Errors for calls that ``vmap`` does not support, with torch's texts."""

from __future__ import annotations

from typing import NoReturn

from telegrad_engine.errors import InvalidOperation, ShapeMismatch
from telegrad_engine.schema.op import Op

EXTENDING = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"
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
NORMS = frozenset({"batch_norm", "instance_norm"})


def refuse_dynamic_shape(op: Op) -> NoReturn:
    """Raise InvalidOperation for an op whose result's shape would differ between samples."""
    name = "_unique2" if op.key == "unique" else op.public
    raise InvalidOperation(
        op.batching.dynamic
        or "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over "
        f"aten::{name}. Please file an issue at https://github.com/pytorch/pytorch/issues if you need this feature."
    )


def refuse_mask(called: Op | None) -> NoReturn:
    """Raise InvalidOperation for a batched mask as an index; ``called`` is the user's op, None for indexing."""
    raise InvalidOperation((called and called.batching.dynamic) or MASK)


def refuse_to_write(op: Op, called: Op, shape: tuple[int, ...], size: int, level: int) -> NoReturn:
    """Raise an error for an in-place op that would write different values per sample to a tensor shared by all samples.

    ``called`` is the op that the user called: ``op`` itself or one that consists of it.
    """
    if called.key in NORMS:
        raise InvalidOperation(STATISTICS)
    if op.key in ("add", "atan2"):
        raise ShapeMismatch(f"output with shape {list(shape)} doesn't match the broadcast shape {[size, *shape]}")
    name, where = f"aten::{op.name}_", f"at level {level}"
    if op.batching.in_place:
        name, where = op.batching.in_place, "in a vmap"
    raise InvalidOperation(
        f"vmap: {name}(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has "
        "more elements than `self`. This happened due to `other` being vmapped over but `self` not being vmapped over "
        f"{where}. Please try to use out-of-place operators instead of {name}. If said operator is being called inside "
        "the PyTorch framework, please file a bug report instead."
    )
