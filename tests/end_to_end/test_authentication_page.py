"""docs/how-to/authentication.md typed as it stands by a new user: nothing that worked before is locked afterwards."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "authentication.md").read_text()
COMMANDS, WAY_BACK, [REQUEST], EXPORTS = (
    [line.partition("  # ")[0].strip() for line in block.replace("\\\n", " ").splitlines()]
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
)
WAIT_S = 110


class User:
    """A user with an empty home, whose shell keeps what was exported."""

    def __init__(self, home: Path) -> None:
        path = os.pathsep.join([os.fspath(Path(sys.executable).parent), os.environ["PATH"]])
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TELEGRAD_", "XDG_"))}
        self._home, self._env, self._exports = home, kept | {"HOME": str(home), "PATH": path}, "true"

    def types(self, line: str) -> str:
        """Type a line, which succeeds, and return what it prints."""
        command = ["bash", "-euc", f"{self._exports}\n{line}"]
        done = subprocess.run(
            command, cwd=self._home, env=self._env, capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        if line.startswith("export "):
            self._exports = line
        return done.stdout.strip()

    @contextmanager
    def serves(self, line: str) -> Iterator[str]:
        """Type a line that starts a server; its address."""
        command = ["bash", "-euc", f"exec {line} --port 0"]
        with subprocess.Popen(command, cwd=self._home, env=self._env, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline().split()[-1]
            finally:
                process.terminate()


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


@pytest.mark.full
def test_a_new_user_follows_the_page_and_the_demo_still_runs(user: User, tmp_path: Path) -> None:
    create, show, certify, serve = COMMANDS
    key = user.types(create)
    assert key.startswith("tg_") and key.split("_")[1] in user.types(show)
    user.types(certify)
    trusted = ssl.create_default_context(cafile=tmp_path / "server.pem")
    with user.serves(serve.replace("0.0.0.0", "127.0.0.1")) as url:
        assert httpx.get(f"{url}/v1/sessions", verify=trusted).status_code == 401
        answer = httpx.get(f"{url}/v1/sessions", verify=trusted, headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 200
        request = REQUEST.replace("https://gpu.example.org:8000", url) + " --fail --silent --cacert server.pem"
        assert '"items"' in user.types(f"TELEGRAD_API_KEY={key}; {request}")
    for export in EXPORTS:
        user.types(export)
    assert "test accuracy" in user.types(f"{sys.executable} {ROOT / 'examples' / 'digits.py'}")
    with user.serves("telegrad serve --no-require-keys") as url:
        assert httpx.get(f"{url}/v1/sessions").status_code == 200
    for line in WAY_BACK:
        user.types(line)
    with user.serves("telegrad serve") as url:
        assert httpx.get(f"{url}/v1/sessions").status_code == 200
