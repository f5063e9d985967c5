"""``torch.autograd.functional``, and many gradients of one graph in one pass.

products.py   products with Jacobians and Hessians, and these whole
arguments.py  what these functions take and give back, checked
batched.py    the rows of a Jacobian together: what autograd.grad and products.py call
rows.py       the pass that has a leading dimension of rows
"""

from .products import Functional, hessian, hvp, jacobian, jvp, vhp, vjp

__all__ = ["Functional", "hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
