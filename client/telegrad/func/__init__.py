"""``telegrad.func``: function transforms, as ``torch.func``: gradients, Jacobians and vectorization."""

from .einops_backend import rearrange
from .gradients import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from .modules import functional_call, functionalize, replace_all_batch_norm_modules_, stack_module_state
from .vectorized_map import debug_unwrap, vmap

__all__ = ["debug_unwrap", "functional_call", "functionalize", "replace_all_batch_norm_modules_", "stack_module_state"]
__all__ += ["grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp", "vmap"]
__all__ += ["rearrange"]
