"""A character-level GRU on lines of different lengths: packed sequences, clipped gradients, and sampling."""

import numpy as np
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

LINES = [
    "gradients over the wire",
    "a graph on the server",
    "the tape stays at home",
    "send one program a step",
    "look at the loss",
]
SYMBOLS = sorted(set("".join(LINES)))
END = len(SYMBOLS)
IGNORED = -100
rng = np.random.default_rng(1)


class CharGRU(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.embedding = nn.Embedding(END + 1, 12)
        self.gru = nn.GRU(12, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, END + 1)

    def forward(self, symbols, lengths, state=None):
        packed = pack_padded_sequence(self.embedding(symbols), lengths, batch_first=True, enforce_sorted=False)
        output, state = self.gru(packed, state)
        output, _ = pad_packed_sequence(output, batch_first=True)
        return self.head(output), state


def encode(line: str) -> torch.Tensor:
    return torch.tensor([SYMBOLS.index(c) for c in line] + [END])


def sample(model: CharGRU, first: str, count: int = 12) -> str:
    """Draw characters one after the other, with a state that is carried along."""
    text, state = first, None
    with torch.no_grad():
        for _ in range(count):
            last = torch.tensor([[SYMBOLS.index(text[-1])]])
            logits, state = model(last, torch.tensor([1]), state)
            odds = torch.softmax(logits[0, -1] / 0.5, dim=-1).cumsum(0)
            drawn = int(torch.searchsorted(odds, float(rng.uniform(0, 0.999))))
            if drawn == END:
                break
            text += SYMBOLS[drawn]
    return text


def main() -> None:
    model = CharGRU()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(rng.uniform(-0.2, 0.2, tuple(parameter.shape)).astype(np.float32)))
    encoded = [encode(line) for line in LINES]
    symbols = pad_sequence([line[:-1] for line in encoded], batch_first=True)
    targets = pad_sequence([line[1:] for line in encoded], batch_first=True, padding_value=IGNORED)
    lengths = torch.tensor([len(line) - 1 for line in encoded])
    criterion = nn.CrossEntropyLoss(ignore_index=IGNORED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=1e-4)
    for step in range(30):
        logits, _ = model(symbols, lengths)
        loss = criterion(logits.transpose(1, 2), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step}: loss {loss.item():.4f}, gradient norm {float(norm):.4f}")
    model.eval()
    print(repr(sample(model, "g")), repr(sample(model, "t")))


if __name__ == "__main__":
    main()
