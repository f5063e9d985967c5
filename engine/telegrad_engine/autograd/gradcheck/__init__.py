"""``gradcheck`` and ``gradgradcheck``, as torch.autograd has them, texts included.

call.py         the two functions, with torch's arguments
check.py        one function at one point, and what must hold there
differences.py  a Jacobian held against differences: element by element, or one combination
"""

from .call import Gradcheck, gradcheck, gradgradcheck

__all__ = ["Gradcheck", "gradcheck", "gradgradcheck"]
