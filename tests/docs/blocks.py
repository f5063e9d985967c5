"""Runs the blocks of code on a page in order: Python, shell and JavaScript; JSON, TOML and YAML are parsed.

What a page starts with ``telegrad serve`` is the page's server; without such a block it is one that the tests
started. The address that pages name stands for it. What a page calls a server on another machine is one with TLS and
keys, which the tests have started too. A page's blocks share one Python process, one shell and one folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import unittest
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from ruamel.yaml import YAML
from sybil import Example, Sybil
from sybil.evaluators.skip import Skipper
from sybil.parsers.markdown import CodeBlockParser, SkipParser

from ..servers import END_WITH_TESTS, address_in

ROOT = Path(__file__).parents[2]
ADDRESS = "http://127.0.0.1:8000"
"""The address of the server on every page."""
ELSEWHERE, KEY = "https://gpu.example.org:8000", "tg_…"
"""The address of a server on another machine, and a key that it takes."""
CERTIFICATES = "SSL_CERT_FILE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"
"""Variables that name the file of the authorities to trust, of Python, curl and Node.js."""
MARK = "end-of-block"
LONGEST_S = 60
FENCE = re.compile(r"^ *```([^\n`]+)$", re.MULTILINE)
TEXTS = {"text", "http"}
"""The languages of blocks that are no code."""
PRINTED = re.compile(r"^ *(?:print|console\.log)\(.*\)[;]?  ?(?:#|//) (.+)$", re.MULTILINE)
"""A call that prints, with what it prints in a comment."""
INTERRUPTED = re.compile(r"^(.+?) +# .*until Ctrl-C$", re.MULTILINE)
"""A command that goes on until it is interrupted."""
INTERRUPT = """
until_interrupted() {
    timeout --signal=INT 3 "$@" > seen || test $? = 124
    test -s seen
}
"""
"""Runs a command, which has to print something, and interrupts it."""
SERVE = re.compile(r"^(?:\w+=\S+ )*telegrad serve\b(?!.*--help).*(?:\\\n.*)*", re.MULTILINE)


def json_texts(source: str) -> list[Any]:
    """The JSON texts of a block, one after another. Raises ValueError if it has anything else."""
    found, rest = [], source.strip()
    while rest:
        value, end = json.JSONDecoder().raw_decode(rest)
        found.append(value)
        rest = rest[end:].lstrip()
    return found


class Elsewhere(NamedTuple):
    """A server with TLS and keys."""

    url: str
    key: str
    authority: Path
    """The file of the authority that has signed its certificate."""


class Ran(NamedTuple):
    """What became of the blocks of a page."""

    ran: int
    skipped: list[str]
    """The reasons."""


class Page:
    """A page whose blocks are run in a folder of its own. Use it in a ``with`` statement."""

    def __init__(self, path: Path, folder: Path, server: Callable[[], str], elsewhere: Callable[[], Elsewhere]) -> None:
        self._path, self._folder, self._server = path, folder, server
        self._text = path.read_text(encoding="utf-8")
        self._elsewhere = elsewhere() if ELSEWHERE in self._text else None
        self._address: str | None = None
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        project, home = self._folder / "project", self._folder / "home"
        project.mkdir()
        home.mkdir()
        (self._folder / "telegrad").symlink_to(ROOT)
        for name in ("examples", "openapi"):
            (project / name).symlink_to(ROOT / name)
        if self._elsewhere is not None:
            (project / "own-ca.pem").symlink_to(self._elsewhere.authority)
        (home / ".curlrc").write_text("fail-with-body\nno-progress-meter\n")  # so that an error ends the shell
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.terminate()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._stack.close()

    def run(self) -> Ran:
        """Run all blocks. Raises AssertionError for one that fails, and for one that is neither run nor skipped."""
        runners = {
            "python": self._python, "pycon": self._session, "js": self._javascript,
            "sh": self._shell, "bash": self._shell,
            "json": lambda source, _: json_texts(source),
            "toml": lambda source, _: tomllib.loads(source),
            "yaml": lambda source, _: [*YAML().load_all(source)],
        }  # fmt: skip
        languages = {language.strip() for language in FENCE.findall(self._text)} - TEXTS
        parsers = [CodeBlockParser(language, self._runner(runners.get(language))) for language in sorted(languages)]
        document = Sybil([*parsers, SkipParser()], path=str(self._path.parent)).parse(self._path)
        ran, skipped = 0, []
        for example in document.examples():
            try:
                example.evaluate()
            except unittest.SkipTest as skip:
                skipped.append(str(skip))
            else:
                ran += not isinstance(example.region.evaluator, Skipper)
        return Ran(ran, skipped)

    def _runner(self, run: Callable[[str, str], Any] | None) -> Callable[[Example], None]:
        def evaluate(example: Example) -> None:
            place = f"{self._path.name}, line {example.line}"
            assert run is not None, (
                f"{place}: blocks in this language are not run, so the page must skip it and say why"
            )
            run(str(example.parsed), place)

        return evaluate

    def _python(self, source: str, place: str) -> None:
        process = self._process("python", [sys.executable, "-u", str(Path(__file__).with_name("prompt.py"))])
        replaced = self._replaced(source)
        line = json.dumps({"source": replaced, "place": place, "mark": MARK, "mode": "exec"})
        self._check(source, self._answer(process, line, f"{place}:\n{source}"), place)

    def _session(self, source: str, place: str) -> None:
        """Run a session of Python of one input, and check what it prints."""
        lines = source.splitlines()
        code = "\n".join(line[4:] for line in lines if line.startswith((">>> ", "... ")))
        said = "".join("".join(line for line in lines if not line.startswith((">>> ", "... "))).split())
        process = self._process("python", [sys.executable, "-u", str(Path(__file__).with_name("prompt.py"))])
        line = json.dumps({"source": code, "place": place, "mark": MARK, "mode": "single"})
        printed = "".join(self._answer(process, line, f"{place}:\n{source}").split())
        assert printed == said, f"{place} says {said}; printed was {printed}"

    def _shell(self, source: str, place: str) -> None:
        if SERVE.search(source):
            self._serve(source)
            return
        process = self._process("sh", ["bash", "-eu", "-o", "pipefail"])
        file = self._folder / "block.sh"
        file.write_text(INTERRUPT + INTERRUPTED.sub(r"until_interrupted \1", self._replaced(source)))
        self._answer(process, f". {file} < /dev/null; echo; echo {MARK} 0", f"{place}:\n{source}")

    def _javascript(self, source: str, place: str) -> None:
        node = shutil.which("node")
        if node is None:
            assert not os.environ.get("CI"), "the pages have JavaScript, which needs Node.js"
            raise unittest.SkipTest("there is no Node.js")
        command = [node, "--input-type=module", "--eval", self._replaced(source)]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self._cwd, env=self._environment, check=False, input="\n"
        )
        assert done.returncode == 0, (place, done.stdout, done.stderr)
        self._check(source, done.stdout, place)

    def _serve(self, source: str) -> None:
        """Start the server of a block, on a free port; it ends with the page. Lines before it are run in the shell."""
        found = SERVE.search(source)
        assert found is not None
        if (before := source[: found.start()]).strip():
            self._shell(before, "before the server")
        script = f"exec {found.group().partition('  #')[0]} --port 0 {END_WITH_TESTS}"
        process = subprocess.Popen(
            ["bash", "-euc", script], cwd=self._cwd, env=self._environment, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        self._processes["server"] = process
        assert process.stdout is not None
        self._address = address_in(process.stdout.readline())

    def _check(self, source: str, printed: str, place: str) -> None:
        """Check that what comments say is printed is printed, in this order."""
        rest = "".join(printed.split())
        for said in PRINTED.findall(source):
            _, found, rest = rest.partition("".join(said.split()))
            assert found, f"{place} says {said!r}; printed was {printed}"

    def _replaced(self, source: str) -> str:
        if self._elsewhere is not None:
            source = source.replace(ELSEWHERE, self._elsewhere.url).replace(KEY, self._elsewhere.key)
        if ADDRESS not in source and "127.0.0.1:8000" not in source:
            return source
        if self._address is None:
            self._address = self._server()
        return source.replace(ADDRESS, self._address).replace("127.0.0.1:8000", self._address.rpartition("/")[2])

    def _process(self, name: str, command: list[str]) -> subprocess.Popen[str]:
        if name not in self._processes:
            self._processes[name] = subprocess.Popen(
                command, cwd=self._cwd, env=self._environment, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        return self._processes[name]

    def _answer(self, process: subprocess.Popen[str], line: str, place: str) -> str:
        """Send a line to a process, and return what it prints until the end of the block."""
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        printed: list[str] = []
        watch = threading.Timer(LONGEST_S, process.kill)
        watch.start()
        try:
            for each in process.stdout:
                if each.startswith(MARK):
                    assert each.split() == [MARK, "0"], f"{place}\n{''.join(printed)}"
                    return "".join(printed)
                printed.append(each)
        finally:
            watch.cancel()
        raise AssertionError(f"{place}\nended the process, after\n{''.join(printed)}")

    @property
    def _cwd(self) -> Path:
        return self._folder / "project"

    @property
    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TELEGRAD_", "XDG_"))}
        if self._elsewhere is not None:
            kept["TELEGRAD_API_KEY"] = self._elsewhere.key
            kept |= dict.fromkeys(CERTIFICATES, str(self._elsewhere.authority))
        return kept | {"HOME": str(self._folder / "home"), "PATH": path}
