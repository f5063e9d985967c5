"""REINFORCE with a baseline on a cart-pole, whose dynamics are a few lines of Python."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(3)
GAMMA, EPISODES, STEPS = 0.99, 12, 60


class CartPole:
    """A pole on a cart that is pushed left or right (Barto, Sutton and Anderson, 1983)."""

    def reset(self) -> list[float]:
        self.state = rng.uniform(-0.05, 0.05, 4).tolist()
        return self.state

    def step(self, action: int) -> tuple[list[float], float, bool]:
        x, v, angle, spin = self.state
        force = 10.0 if action == 1 else -10.0
        sine, cosine = math.sin(angle), math.cos(angle)
        push = (force + 0.05 * spin**2 * sine) / 1.1
        turning = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        moving = push - 0.05 * turning * cosine / 1.1
        self.state = [x + 0.02 * v, v + 0.02 * moving, angle + 0.02 * spin, spin + 0.02 * turning]
        fallen = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * math.pi / 180
        return self.state, 1.0, fallen


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 16)
        self.actor = nn.Linear(16, 2)
        self.critic = nn.Linear(16, 1)

    def forward(self, state):
        h = torch.tanh(self.body(state))
        return F.log_softmax(self.actor(h), dim=-1), self.critic(h).squeeze(-1)


def main() -> None:
    policy, environment = Policy(), CartPole()
    for parameter in policy.parameters():
        parameter.data = torch.from_numpy(rng.uniform(-0.4, 0.4, tuple(parameter.shape)).astype(np.float32))
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=0.01)
    lengths = []
    for episode in range(EPISODES):
        state, log_probabilities, values, rewards = environment.reset(), [], [], []
        for _ in range(STEPS):
            scores, value = policy(torch.tensor(state))
            action = int(rng.uniform() < scores.exp()[1].item())
            log_probabilities.append(scores[action])
            values.append(value)
            state, reward, fallen = environment.step(action)
            rewards.append(reward)
            if fallen:
                break
        returns, total = [], 0.0
        for reward in reversed(rewards):
            total = reward + GAMMA * total
            returns.insert(0, total)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        values = torch.stack(values)
        advantages = returns - values.detach()
        loss = -(torch.stack(log_probabilities) * advantages).sum() + F.smooth_l1_loss(values, returns)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 1.0)
        optimizer.step()
        lengths.append(len(rewards))
        if episode % 4 == 3:
            print(f"episode {episode}: {lengths[-4:]} steps, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
