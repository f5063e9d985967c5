"""A network that reads words letter by letter: the graph is as long as the word."""

from __future__ import annotations

from library import Library, Tensor, fill, run, show

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = {"oak": 0, "willow": 0, "hornbeam": 0, "elm": 0, "sycamore": 0, "tin": 1, "iron": 1, "copper": 1, "lead": 1}
"""Trees are 0, metals 1."""


def main(lib: Library) -> None:
    class Reader(lib.nn.Module):
        """Reads a word and says how much it looks like each kind."""

        def __init__(self) -> None:
            super().__init__()
            self.cell = lib.nn.RNNCell(len(LETTERS), 12)
            self.out = lib.nn.Linear(12, 2)

        def forward(self, word: str) -> Tensor:
            h = lib.zeros(1, 12, dtype=lib.float64)
            for letter in word:
                h = self.cell(one_hot[LETTERS.index(letter)].unsqueeze(0), h)
            return self.out(h)

    one_hot = lib.eye(len(LETTERS), dtype=lib.float64)
    model = fill(lib, Reader(), 0)
    criterion = lib.nn.CrossEntropyLoss()
    optimizer = lib.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(8):
        total = 0.0
        for word, kind in WORDS.items():
            optimizer.zero_grad()
            loss = criterion(model(word), lib.tensor([kind]))
            loss.backward()
            optimizer.step()
            total += loss.item()
        show(f"epoch {epoch}, loss", total / len(WORDS))
    right = sum(model(word).argmax(dim=1).item() == kind for word, kind in WORDS.items())
    print(f"{right} of {len(WORDS)} right")


if __name__ == "__main__":
    run(main)
