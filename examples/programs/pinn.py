"""A physics-informed network for a damped oscillator, u'' + u' + 4 u = 0, with derivatives by torch.func."""

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

rng = np.random.default_rng(2)
DAMPING, STIFFNESS = 1.0, 4.0


class Solution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, t):
        return self.net(t)


def exact(t: np.ndarray) -> np.ndarray:
    frequency = np.sqrt(STIFFNESS - DAMPING**2 / 4)
    return np.exp(-DAMPING * t / 2) * (np.cos(frequency * t) + DAMPING / (2 * frequency) * np.sin(frequency * t))


def main() -> None:
    model = Solution().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(rng.uniform(-0.6, 0.6, tuple(parameter.shape))))

    def u(parameters, t):
        return functional_call(model, parameters, (t.reshape(1, 1),)).squeeze()

    du = grad(u, argnums=1)
    d2u = grad(du, argnums=1)

    def residual(parameters, t):
        return d2u(parameters, t) + DAMPING * du(parameters, t) + STIFFNESS * u(parameters, t)

    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.7)
    points = torch.linspace(0.0, 2.0, 20, dtype=torch.float64)
    start = torch.zeros((), dtype=torch.float64)
    for step in range(60):
        parameters = dict(model.named_parameters())
        physics = vmap(residual, in_dims=(None, 0))(parameters, points).pow(2).mean()
        initial = (u(parameters, start) - 1.0) ** 2 + du(parameters, start) ** 2
        loss = physics + 10.0 * initial
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 20 == 19:
            print(f"step {step}: physics {physics.item():.5f}, initial {initial.item():.5f}")
    with torch.no_grad():
        found = vmap(lambda t: model(t.reshape(1, 1)).squeeze())(points)
    error = np.abs(found.numpy() - exact(points.numpy())).max()
    print(f"largest error {error:.4f}, u(0) = {found[0].item():.4f}")


if __name__ == "__main__":
    main()
