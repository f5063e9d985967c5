"""The limits that docs/how-to/limits.md lists are those of the server, and what the help of its commands looks like."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from telegrad_service.cli import main
from telegrad_service.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "limits.md"
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
ROW = re.compile(r"^\| `TELEGRAD_(MAX_\w+|REMEMBERED_BYTES|RECONNECT_S)` \| (.+?) \|", re.MULTILINE)
COMPUTED = frozenset({"max_process_bytes", "max_tenant_bytes"})
"""Settings whose defaults depend on the machine."""


def stated(text: str) -> float:
    """The number in ``2 GiB`` or ``300``."""
    number, _, unit = text.partition(" ")
    return float(number) * UNITS.get(unit, 1)


def test_the_table_of_limits_is_that_of_the_settings() -> None:
    rows = {name.lower(): default for name, default in ROW.findall(PAGE.read_text())}
    fields = Settings.model_fields
    assert rows.keys() <= fields.keys()
    for name, default in rows.items():
        if name not in COMPUTED:
            assert stated(default) == fields[name].default, name


def test_every_limit_is_in_the_documentation() -> None:
    text = PAGE.read_text()
    limits = [name for name in Settings.model_fields if name.startswith("max_") and not name.startswith("max_json")]
    assert [name for name in limits if f"TELEGRAD_{name.upper()}" not in text] == []


@pytest.mark.every
@pytest.mark.parametrize("name", ["serve", "gateway", "worker", "cluster join"])
def test_the_help_of_a_server_is_in_groups_and_in_plain_words(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*name.split(), "--help"])
    shown = capsys.readouterr().out
    groups = dict(re.findall(r"^(\S.*):\n((?:  .*\n)+)", shown, re.MULTILINE))
    assert "--host TEXT" in groups["Where a server listens"] and "--insecure" in groups["Who may use a server"]
    assert "--log-level {critical" in groups["What is logged"]
    assert all(group.count("\n  --") <= 12 for group in groups.values()), "no group is a wall"
    if name == "serve":
        assert shown.index("--workers NUMBER") < shown.index("--host"), "among the first"
    flags = re.findall(r"^  --[\w-]+(?: (\S+))?", shown, re.MULTILINE)
    assert {flag for flag in flags if not flag.startswith("{")} <= {"", "TEXT", "NUMBER", "FILE", "NAME=NUMBER"}
    for word in ("str", "int", "Path", "SecretStr", "null", "lambda", "(default: )", "[]"):
        assert not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", shown), word


def test_a_flag_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--wokers", "2"])
    assert ended.value.code == 2 and "unrecognized arguments: --wokers" in capsys.readouterr().err


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.setenv(f"TELEGRAD_{name.upper()}", "")
    settings = Settings()
    assert settings.data_dir is None and settings.max_sessions == Settings.model_fields["max_sessions"].default
