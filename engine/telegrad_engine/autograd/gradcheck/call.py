"""``gradcheck`` and ``gradgradcheck``: comparison of derivatives with finite differences of the function.

They behave as in ``torch.autograd``, including the error texts. They use only a ``grad`` function, ``forward_ad`` and
tensor methods, so the engine's and the SDK's tensors share them; only the comparison uses plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import GradcheckError, InvalidChoice
from ...transforms import forward_ad
from ...transforms.batched_gradients import grad
from .check import Check, random_like, tracked
from .differences import Tensors, Tolerance, outputs_of


class Gradcheck:
    """The two functions, over a ``grad`` with torch's arguments; ``forward_ad`` returns the module of that name."""

    def __init__(self, grad: Callable[..., Sequence[Any]], forward_ad: Callable[[], Any]) -> None:
        self._grad, self._forward_ad = grad, forward_ad

    def gradcheck(
        self,
        func: Callable[..., Any],
        inputs: Any,
        *,
        eps: float = 1e-6,
        atol: float = 1e-5,
        rtol: float = 1e-3,
        raise_exception: bool = True,
        nondet_tol: float = 0.0,
        check_undefined_grad: bool = True,
        check_grad_dtypes: bool = False,
        check_batched_grad: bool = False,
        check_batched_forward_grad: bool = False,
        check_forward_ad: bool = False,
        check_backward_ad: bool = True,
        fast_mode: bool = False,
        masked: bool | None = None,
    ) -> bool:
        """Return True if the gradients of ``func`` agree with finite differences of step ``eps``.

        Inputs that require grad are checked; they should be float64. ``fast_mode`` compares one random combination of
        all derivatives instead of each. ``check_grad_dtypes`` has no effect, because every gradient is cast to its
        input's dtype, and neither has ``masked``, which is for sparse tensors. On a mismatch it raises GradcheckError,
        or returns False without ``raise_exception``. Raises ValueError if no input requires grad.
        """
        if not (check_forward_ad or check_backward_ad):
            raise InvalidChoice("Expected at least one of check_forward_ad or check_backward_ad to be True")
        if check_batched_grad and not check_backward_ad:
            raise InvalidChoice("Setting check_batched_grad=True requires check_backward_ad to be True")
        if check_batched_forward_grad and not check_forward_ad:
            raise InvalidChoice("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
        tolerance = Tolerance(eps, atol, rtol, nondet_tol)
        try:
            check = Check(self._grad, self._forward_ad(), func, _as_tuple(inputs), tolerance)
            check.run(check_backward_ad, check_forward_ad, fast_mode)
            if check_backward_ad and check.outputs:
                check.run_further(check_batched_grad, check_undefined_grad)
        except GradcheckError:
            if raise_exception:
                raise
            return False
        return True

    def gradgradcheck(
        self,
        func: Callable[..., Any],
        inputs: Any,
        grad_outputs: Any = None,
        *,
        eps: float = 1e-6,
        atol: float = 1e-5,
        rtol: float = 1e-3,
        gen_non_contig_grad_outputs: bool = False,
        raise_exception: bool = True,
        nondet_tol: float = 0.0,
        check_undefined_grad: bool = True,
        check_grad_dtypes: bool = False,
        check_batched_grad: bool = False,
        check_fwd_over_rev: bool = False,
        check_rev_over_rev: bool = True,
        fast_mode: bool = False,
        masked: bool = False,
    ) -> bool:
        """Run :meth:`gradcheck` on the gradients of ``func``, as a function of its inputs and ``grad_outputs``.

        If ``grad_outputs`` are not given, they are random numbers between -1 and 1. ``gen_non_contig_grad_outputs``
        has no effect: the memory layout does not matter.
        """
        if not (check_fwd_over_rev or check_rev_over_rev):
            raise InvalidChoice("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
        if check_undefined_grad and not check_rev_over_rev:
            raise InvalidChoice("Setting check_undefined_grad=True requires check_rev_over_rev to be True")
        if check_batched_grad and not check_rev_over_rev:
            raise InvalidChoice("Setting check_batched_grad=True requires check_rev_over_rev to be True")
        inputs = _as_tuple(inputs)
        seeds = _seeds_for(outputs_of(func, inputs)) if grad_outputs is None else _as_tuple(grad_outputs)

        def gradients(*args: Any) -> Tensors:
            arguments = args[: len(inputs)]
            outputs = outputs_of(func, arguments)
            grads = self._grad(outputs, tracked(arguments), args[len(inputs) :], create_graph=True, allow_unused=True)
            return tuple([g for g in grads if g is not None])

        return self.gradcheck(
            gradients,
            inputs + seeds,
            eps=eps,
            atol=atol,
            rtol=rtol,
            raise_exception=raise_exception,
            nondet_tol=nondet_tol,
            check_undefined_grad=check_undefined_grad,
            check_grad_dtypes=check_grad_dtypes,
            check_batched_grad=check_batched_grad,
            check_forward_ad=check_fwd_over_rev,
            check_backward_ad=check_rev_over_rev,
            fast_mode=fast_mode,
        )


def _as_tuple(value: Any) -> Tensors:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _seeds_for(outputs: Tensors) -> Tensors:
    return tuple([random_like(out, seed).requires_grad_() for seed, out in enumerate(outputs)])


_ENGINE = Gradcheck(grad, lambda: forward_ad)
gradcheck, gradgradcheck = _ENGINE.gradcheck, _ENGINE.gradgradcheck
