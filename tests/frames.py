"""zstd frames as others write them, of unknown length and of zeros beyond measure; and Python without the library."""

from __future__ import annotations

from pathlib import Path

from backports import zstd

BLOCK = 2**17
"""Bytes of a frame's longest block."""


def bomb(size: int, promised: int | None = None) -> bytes:
    """A frame of so many zeros, written by hand: a block takes four bytes. Its header may promise another size."""
    window = 7 << 3  # of a block
    head = bytes([0x00, window]) if promised is None else bytes([0xC0, window]) + promised.to_bytes(8, "little")
    whole, rest = divmod(size, BLOCK)
    return b"\x28\xb5\x2f\xfd" + head + _zeros(BLOCK) * whole + _zeros(rest, last=True)


def _zeros(size: int, last: bool = False) -> bytes:
    return (last | 1 << 1 | size << 3).to_bytes(3, "little") + b"\0"


def unsized(body: bytes) -> bytes:
    """A frame whose writer did not know how long it would be."""
    compressor = zstd.ZstdCompressor()
    middle = len(body) // 2
    return compressor.compress(body[:middle]) + compressor.compress(body[middle:]) + compressor.flush()


def hiding(folder: Path) -> str:
    """A folder which, first on a process's path, keeps the library from being found."""
    for package in ("backports", "compression"):
        (folder / package / "zstd").mkdir(parents=True)
        (folder / package / "__init__.py").touch()  # a package without one is found behind one that has it
        (folder / package / "zstd" / "__init__.py").write_text("raise ImportError('not installed')")
    return str(folder)
