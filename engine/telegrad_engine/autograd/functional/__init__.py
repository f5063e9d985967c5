"""``torch.autograd.functional``, and many gradients of one graph in one pass.

products.py   products with Jacobians and Hessians, and the whole matrices
arguments.py  checks of these functions' arguments and results
batched.py    many rows of a Jacobian in one pass, for autograd.grad and products.py
rows.py       the backward pass on gradients with a leading dimension of rows
"""

from .products import Functional, hessian, hvp, jacobian, jvp, vhp, vjp

__all__ = ["Functional", "hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
