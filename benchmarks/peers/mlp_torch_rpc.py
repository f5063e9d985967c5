"""torch RPC with distributed autograd: a training step of a 784-128-10 network in a server.

As in PyTorch's tutorial on parameter servers, each step sends a batch and receives the scores; the client computes the
loss, and the server computes the gradients and the optimizer's step. With a port as argument, the script is the server.
"""

from __future__ import annotations

import os
import sys

import torch
from calls import LOOPBACK, answer, beside, end_with_input, free_port
from torch.distributed import autograd, rpc
from torch.distributed.optim import DistributedOptimizer

BATCH, READ_EVERY = 64, 10
NAMES = ("client", "server")


class Net(torch.nn.Module):
    """The network, in the server."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layers(x)
        return scores

    def parameters_there(self) -> list[rpc.RRef[torch.Tensor]]:
        """Remote references to the parameters, for the distributed optimizer."""
        return [rpc.RRef(p) for p in self.parameters()]


def join(rank: int, port: str) -> None:
    """Join the group of two processes, on the loopback interface only."""
    os.environ.update(MASTER_ADDR=LOOPBACK, MASTER_PORT=port, TP_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo")
    rpc.init_rpc(NAMES[rank], rank=rank, world_size=len(NAMES))


def main(port: str | None = None) -> None:
    if port is not None:
        end_with_input()
        join(1, port)
        rpc.shutdown()  # waits for the client's shutdown
        return
    number = str(free_port())
    with beside(__file__, number):
        join(0, number)
        train()
        rpc.shutdown()


def train() -> None:
    net = rpc.remote(NAMES[1], Net)
    optimizer = DistributedOptimizer(torch.optim.SGD, net.rpc_sync().parameters_there(), lr=0.01)
    loss_function = torch.nn.CrossEntropyLoss()
    images, labels = torch.randn(10, BATCH, 784), torch.randint(0, 10, (10, BATCH))
    turn = 0

    def step() -> None:
        nonlocal turn
        turn = (turn + 1) % len(images)
        with autograd.context() as context:
            loss = loss_function(net.rpc_sync().forward(images[turn]), labels[turn])
            autograd.backward(context, [loss])
            optimizer.step(context)
        if turn % READ_EVERY == 0:
            loss.item()

    answer(step)


if __name__ == "__main__":
    # The server looks up the network's class in this module, not in its __main__.
    import mlp_torch_rpc

    mlp_torch_rpc.main(*sys.argv[1:])
