"""The stubs say what the catalogue has.

Internals: the stubs are made anew and compared.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from telegrad_engine.stubs import stub_files

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", list(stub_files(ROOT)), ids=lambda p: p.name)
def test_stub_is_in_step(path: Path) -> None:
    assert path.read_text() == stub_files(ROOT)[path], "run `make stubs`"
