"""The pictures that end ``digits.py``: the loss curve and some digits with their predictions, as text and as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from rich.text import Text

WIDTH, HEIGHT = 64, 8
"""The size of the curve in a terminal, in characters."""
EIGHTHS = " ▁▂▃▄▅▆▇█"
SHADES = " ░▒▓█"
GAP, IN_A_LINE = "   ", 4
"""Four digits fit a terminal of 80 columns."""
RIGHT, WRONG = "#2a9d4a", "#d1495b"


def averaged(losses: Sequence[float], points: int) -> np.ndarray:
    """The mean losses (points) of as many successive parts of the training."""
    return np.array([part.mean() for part in np.array_split(np.asarray(losses), min(points, len(losses)))])


def curve_text(losses: Sequence[float]) -> Text:
    """The loss over the steps as a chart of characters, from 0 at its foot to the largest loss."""
    values = averaged(losses, WIDTH)
    eighths = np.rint(values / values.max() * HEIGHT * 8).astype(int)
    lines = []
    for row in reversed(range(HEIGHT)):
        label = f"{values.max() * (row + 1) / HEIGHT:5.2f} ┤"
        lines.append(label + "".join(EIGHTHS[min(8, max(0, level - 8 * row))] for level in eighths))
    lines.append(f" 0.00 ┼{'─' * len(values)}")
    lines.append(f"       1{f'step {len(losses)}':>{len(values) - 1}}")
    return Text("\n".join(lines))


def digits_text(images: np.ndarray, digits: Sequence[int], guesses: Sequence[int]) -> Text:
    """The first four images (n, 64), from 0 to 1, with their predictions, and their digits where they differ."""
    text = Text()
    shades = np.rint(images[:IN_A_LINE].reshape(-1, 8, 8) * (len(SHADES) - 1)).astype(int)
    for row in range(8):
        text.append(GAP.join("".join(SHADES[shade] * 2 for shade in image[row]) for image in shades) + "\n")
    for digit, guess in zip(digits[:IN_A_LINE], guesses[:IN_A_LINE], strict=True):
        label = f"{guess}" if digit == guess else f"{guess}, is {digit}"
        text.append(f"{label:^16}{GAP}", style="green" if digit == guess else "bold red")
    return text


def svg(losses: Sequence[float], images: np.ndarray, digits: Sequence[int], guesses: Sequence[int]) -> str:
    """Both as one SVG picture, 640 pixels wide, which follows the light or dark colours of the reader."""
    parts = chain(_curve(losses), _digits(images, digits, guesses))
    light, dark = "svg{background:#fff;color:#222}", "svg{background:#16181d;color:#ddd}"
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 360" width="640" height="360" '
        'font-family="sans-serif" font-size="13" fill="currentColor" role="img" '
        'aria-label="Loss curve and predicted digits">'
        f"<style>{light}@media(prefers-color-scheme:dark){{{dark}}}</style>{''.join(parts)}</svg>\n"
    )


def _curve(losses: Sequence[float]) -> Iterator[str]:
    values = averaged(losses, 200)
    left, right, top, foot = 50, 620, 30, 200
    xs = np.linspace(left, right, len(values))
    ys = foot - (foot - top) * values / values.max()
    points = "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True))
    yield f'<text x="{left}" y="18">Loss of each batch of the training</text>'
    for share in (0, 0.5, 1):
        y = foot - (foot - top) * share
        yield f'<line x1="{left}" y1="{y}" x2="{right}" y2="{y}" stroke="currentColor" stroke-opacity="0.2"/>'
        yield f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{values.max() * share:.2f}</text>'
    yield f'<path d="M{points}" fill="none" stroke="#3b82c4" stroke-width="2"/>'
    yield f'<text x="{right}" y="{foot + 18}" text-anchor="end">step {len(losses)}</text>'


def _digits(images: np.ndarray, digits: Sequence[int], guesses: Sequence[int]) -> Iterator[str]:
    side = 8
    yield '<text x="50" y="242">Images of the test, and what the network says</text>'
    for place, (image, digit, guess) in enumerate(zip(images, digits, guesses, strict=True)):
        left, top = 50 + place * 580 / len(images), 252
        yield f'<rect x="{left:.0f}" y="{top}" width="{8 * side}" height="{8 * side}" fill="#000"/>'
        for at in np.flatnonzero(image):
            x, y, level = left + at % 8 * side, top + at // 8 * side, int(255 * image[at])
            yield f'<rect x="{x:.0f}" y="{y}" width="{side}" height="{side}" fill="rgb({level},{level},{level})"/>'
        label, colour = (f"{guess}", RIGHT) if digit == guess else (f"{guess}, is {digit}", WRONG)
        yield (
            f'<text x="{left + 4 * side:.0f}" y="{top + 8 * side + 22}" text-anchor="middle" font-size="16" '
            f'fill="{colour}">{label}</text>'
        )
