"""A Function of one's own, debugged: gradcheck, anomaly mode, hooks; and registered where that exists."""

import warnings

import numpy as np
import torch
from torch.autograd import Function, gradcheck
from torch.autograd.function import once_differentiable


class SoftThreshold(Function):
    """``sign(x) * max(|x| - t, 0)``, the proximal operator of the l1 norm, with gradients for both arguments."""

    @staticmethod
    def forward(ctx, x, threshold):
        kept = x.abs() > threshold
        ctx.save_for_backward(kept, x.sign())
        return torch.where(kept, x - x.sign() * threshold, torch.zeros_like(x))

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        kept, sign = ctx.saved_tensors
        by_x = torch.where(kept, grad, torch.zeros_like(grad))
        by_threshold = -(by_x * sign).sum() if ctx.needs_input_grad[1] else None
        return by_x, by_threshold


class Forgetful(Function):
    """The same with a mistake: the threshold's gradient has the wrong sign."""

    @staticmethod
    def forward(ctx, x, threshold):
        ctx.save_for_backward(x, threshold)
        return torch.where(x.abs() > threshold, x - x.sign() * threshold, torch.zeros_like(x))

    @staticmethod
    def backward(ctx, grad):
        x, threshold = ctx.saved_tensors
        by_x = torch.where(x.abs() > threshold, grad, torch.zeros_like(grad))
        return by_x, (by_x * x.sign()).sum()


def main() -> None:
    rng = np.random.default_rng(4)
    x = torch.from_numpy(rng.uniform(-2, 2, (3, 4))).requires_grad_()
    threshold = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    print("right:", gradcheck(SoftThreshold.apply, (x, threshold)))
    try:
        gradcheck(Forgetful.apply, (x, threshold))
    except RuntimeError as error:
        print("wrong:", str(error).splitlines()[0])

    seen = []
    y = SoftThreshold.apply(x, threshold)
    y.register_hook(lambda g: seen.append(g.abs().sum().item()))
    y.square().mean().backward()
    print(f"hook saw {seen[0]:.4f}; threshold's gradient {threshold.grad.item():.4f}; node {y.grad_fn.name()}")
    first = torch.autograd.grad(SoftThreshold.apply(x, threshold).pow(3).sum(), x, create_graph=True)[0]
    try:
        first.sum().backward()
    except RuntimeError as error:
        print(str(error).splitlines()[0])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.autograd.detect_anomaly():
                (SoftThreshold.apply(x, threshold) * 0).sqrt().sum().backward()
        except RuntimeError as error:
            print(str(error).split("returned")[0] + "returned nan")

    shrink = SoftThreshold.apply
    if hasattr(torch, "register_function"):  # on a server, the registered function runs where the tensors are
        torch.register_function("soft_threshold", SoftThreshold)
        shrink = torch.ops.soft_threshold
    w = torch.zeros(4, dtype=torch.float64)
    a = torch.from_numpy(rng.standard_normal((20, 4)))
    b = a @ torch.tensor([1.5, 0.0, -2.0, 0.0], dtype=torch.float64)
    step = 1.0 / float(torch.linalg.matrix_norm(a, 2)) ** 2
    for _ in range(60):
        w.requires_grad_()
        (gradient,) = torch.autograd.grad(0.5 * (a @ w - b).square().sum(), w)
        w = shrink((w - step * gradient).detach(), torch.tensor(step * 0.5, dtype=torch.float64))
    print("lasso:", " ".join(f"{value:.4f}" for value in (w.detach() + 0.0).tolist()))


if __name__ == "__main__":
    main()
