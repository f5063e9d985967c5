"""Anomaly mode says which operation's derivative was not a number, and which line called it."""

from __future__ import annotations

import warnings

from library import Library, run, show


def main(lib: Library) -> None:
    x = lib.tensor([0.0, 1.0, 4.0], requires_grad=True)
    (x.sqrt() * x.sqrt().detach()).sum().backward()
    show("without it", x.grad)
    x.grad = None

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with lib.autograd.detect_anomaly():
                root = x.sqrt()  # the line that is named
                (root * root.detach()).sum().backward()
        except RuntimeError as error:
            print(error)
    for warning in told:
        lines = [line.strip() for line in str(warning.message).splitlines()]
        print(lines[0].partition(" (Triggered")[0])
        print("\n".join(line for line in lines if "the line that is named" in line))


if __name__ == "__main__":
    run(main)
