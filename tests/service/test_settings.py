"""The limits that docs/deploy.md lists are those of the server, with their defaults."""

from __future__ import annotations

import re
from pathlib import Path

from telegrad_service.settings import Settings

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy.md"
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
ROW = re.compile(r"^\| `TELEGRAD_(MAX_\w+|REMEMBERED_BYTES|RECONNECT_S)` \| (.+?) \|", re.MULTILINE)
COMPUTED = frozenset({"max_process_bytes", "max_tenant_bytes"})
"""Settings whose defaults depend on the machine."""


def stated(text: str) -> float:
    """The number in ``2 GiB`` or ``300``."""
    number, _, unit = text.partition(" ")
    return float(number) * UNITS.get(unit, 1)


def test_the_table_of_limits_is_that_of_the_settings() -> None:
    rows = {name.lower(): default for name, default in ROW.findall(DEPLOY.read_text())}
    fields = Settings.model_fields
    assert rows.keys() <= fields.keys()
    for name, default in rows.items():
        if name not in COMPUTED:
            assert stated(default) == fields[name].default, name


def test_every_limit_is_in_the_documentation() -> None:
    text = DEPLOY.read_text()
    limits = [name for name in Settings.model_fields if name.startswith("max_") and not name.startswith("max_json")]
    assert [name for name in limits if f"TELEGRAD_{name.upper()}" not in text] == []
