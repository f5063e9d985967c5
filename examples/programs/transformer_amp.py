"""A small transformer that reverses sequences, in mixed precision, under the profiler."""

import math

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

VOCABULARY, LENGTH, WIDTH = 11, 6, 32
rng = np.random.default_rng(5)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        places = torch.arange(LENGTH).unsqueeze(1)
        rates = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10000.0) / WIDTH))
        table = torch.zeros(1, LENGTH, WIDTH)
        table[0, :, 0::2] = torch.sin(places * rates)
        table[0, :, 1::2] = torch.cos(places * rates)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[:, : x.size(1)]


class Reverser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = Positions()
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, symbols):
        return self.head(self.encoder(self.positions(self.embedding(symbols) * math.sqrt(WIDTH))))


def main() -> None:
    model = Reverser().to(device)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            bound = 0.0 if name.endswith("bias") else 1.0 if "norm" in name else 0.15
            values = np.ones(tuple(parameter.shape)) if "norm" in name and bound else None
            values = rng.uniform(-bound, bound, tuple(parameter.shape)) if values is None else values
            parameter.copy_(torch.from_numpy(values.astype(np.float32)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5))
    scaler = torch.amp.GradScaler(device, enabled=device == "cuda")
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    def step() -> float:
        symbols = torch.from_numpy(rng.integers(0, VOCABULARY, (16, LENGTH))).to(device)
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            logits = model(symbols)
            loss = criterion(logits.float().flatten(0, 1), symbols.flip(1).flatten())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        warmup.step()
        return loss.item()

    losses = [step() for _ in range(15)]
    print(f"loss {losses[0]:.3f}, {losses[7]:.3f}, {losses[-1]:.3f}; lr {warmup.get_last_lr()[0]:.5f}")
    with profile(activities=[ProfilerActivity.CPU]) as prof, record_function("training step"):
        step()
    names = {event.key for event in prof.key_averages()}
    print(sorted({"training step", "aten::linear", "aten::relu", "aten::layer_norm"} & names))
    model.eval()
    with torch.no_grad():
        logits = model(torch.arange(LENGTH, device=device).unsqueeze(0))
    print(tuple(logits.shape), sum(parameter.numel() for parameter in model.parameters()))


if __name__ == "__main__":
    main()
