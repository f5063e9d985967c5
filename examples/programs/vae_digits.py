"""A variational autoencoder of handwritten digits, with a schedule, early stopping and checkpoints."""

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, Subset, TensorDataset

EPOCHS, PATIENCE, BATCH = 12, 2, 100
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
rng = np.random.default_rng(0)


class VAE(nn.Module):
    def __init__(self, hidden: int = 32, latent: int = 4) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU())
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, 64))

    def forward(self, x):
        h = self.encoder(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        noise = torch.from_numpy(rng.standard_normal(tuple(mean.shape)).astype(np.float32)).to(device)
        z = mean + torch.exp(0.5 * log_variance) * noise
        return self.decoder(z), mean, log_variance


def loss_of(logits, x, mean, log_variance):
    reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return (reconstruction + divergence) / x.size(0)


def initialise(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(rng.uniform(-0.1, 0.1, tuple(parameter.shape)).astype(np.float32)))


def main() -> None:
    images = torch.tensor(load_digits().data[:600] / 16.0, dtype=torch.float32)
    dataset = TensorDataset(images)
    training, validation = Subset(dataset, range(500)), Subset(dataset, range(500, 600))
    model = VAE().to(device)
    initialise(model)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    best, waited = float("inf"), 0
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "best.pt"
        for epoch in range(EPOCHS):
            model.train()
            total = 0.0
            for (x,) in DataLoader(training, batch_size=BATCH, sampler=rng.permutation(500).tolist()):
                x = x.to(device)
                optimizer.zero_grad()
                loss = loss_of(*(lambda out: (out[0], x, *out[1:]))(model(x)))
                loss.backward()
                optimizer.step()
                total += loss.item() * x.size(0)
            model.eval()
            with torch.no_grad():
                (x,) = next(iter(DataLoader(validation, batch_size=100)))
                logits, mean, log_variance = model(x.to(device))
                held_out = loss_of(logits, x.to(device), mean, log_variance).item()
            scheduler.step(held_out)
            lr = optimizer.param_groups[0]["lr"]
            print(f"epoch {epoch}: training {total / 500:.4f}, validation {held_out:.4f}, lr {lr:.5f}")
            if held_out < best - 0.05:
                best, waited = held_out, 0
                state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, checkpoint)
            else:
                waited += 1
            if waited > PATIENCE:
                print("stopped early")
                break
        state = torch.load(checkpoint, map_location=device)
    restored = VAE().to(device)
    restored.load_state_dict(state["model"])
    again = optim.Adam(restored.parameters(), lr=1e-2)
    again.load_state_dict(state["optimizer"])
    with torch.no_grad():
        decoded = torch.sigmoid(restored.decoder(torch.zeros(1, 4, device=device)))
    print(f"best epoch {state['epoch']}, mean of the decoded prior {decoded.mean().item():.4f}")


if __name__ == "__main__":
    main()
