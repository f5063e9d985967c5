"""``gradcheck`` and ``gradgradcheck``, as in torch.autograd, with the same error texts.

call.py         the two functions, with torch's arguments
check.py        the checks of one function at one point
differences.py  comparison of a Jacobian with finite differences: all elements, or one combination
"""

from .call import Gradcheck, gradcheck, gradgradcheck

__all__ = ["Gradcheck", "gradcheck", "gradgradcheck"]
