"""Run a command that takes long, and say every few seconds what it is doing: ``python3 .ci/progress.py COMMAND …``.

Of pip's output it prints the large downloads and the number of packages. Of any other command it prints nothing, except
the last lines if the command fails. Errors and warnings (stderr) are shown as they come. The exit code is that of the
command.
"""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

SILENCE_S = 5.0
"""After so many seconds without a line, one is printed; on a terminal it replaces the one before."""
SHOWN_AFTER_FAILURE = 30
LARGE = re.compile(r"Downloading (\S+?)(?:-(?:cp|py)\d\S*|\.tar\.gz)? \((\d\d+\.?\d* MB|[\d.]+ GB)\)")
COLLECTING = re.compile(r"Collecting ([\w.\-]+)")
BUILDING = re.compile(r"(?:Obtaining|Processing) \S*?([\w.\-]+)(?: \(.*)?$")
INSTALLING = "Installing collected packages: "


def main(command: list[str]) -> int:
    """Run the command, say what it does, and return its exit code."""
    begun = said = time.monotonic()
    terminal = sys.stdout.isatty()
    doing, output, before = "working", deque[str](maxlen=SHOWN_AFTER_FAILURE), installed(command)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
    for line in lines(process):
        news = False
        if line is not None:
            output.append(line)
            doing, news = understood(line, doing)
        if news or time.monotonic() - said >= (1 if terminal else SILENCE_S):
            said = time.monotonic()
            done = f", {installed(command) - before} done" if doing.startswith("installing") and not news else ""
            start, end = ("\r\x1b[K", "\n" if news else "") if terminal else ("", "\n")
            print(f"{start}  {said - begun:3.0f} s  {doing}{done}", end=end, flush=True)
    if terminal:
        print("\r\x1b[K", end="", flush=True)
    if process.wait():
        print(*output, sep="", file=sys.stderr)
    return process.returncode


def installed(command: list[str]) -> int:
    """The number of packages in the environment of the Python that the command starts."""
    return len([*Path(command[0]).absolute().parents[1].glob("lib/python*/site-packages/*.dist-info")])


def lines(process: subprocess.Popen[str]) -> Iterator[str | None]:
    """The lines that the process prints, and None in each second without one."""
    printed: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            printed.put(line)
        printed.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = printed.get(timeout=1)
        except queue.Empty:
            yield None
            continue
        if line is None:
            return
        yield line


def understood(line: str, before: str) -> tuple[str, bool]:
    """What pip does, by its output up to this line, and whether that is printed at once."""
    if line.startswith(INSTALLING):
        packages = line.count(",") + 1
        return f"installing {packages} package{'s'[: packages - 1]}", True
    if found := LARGE.search(line):
        return f"downloading {found[1]}, {found[2]}", True
    if found := COLLECTING.match(line.strip()):
        return f"collecting {found[1]}", False
    if found := BUILDING.match(line.strip()):
        return f"preparing {found[1]}", False
    return before, False


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
