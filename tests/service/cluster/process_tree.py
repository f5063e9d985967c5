"""The descendants of a process, and the addresses on which they listen, from Linux's /proc."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

LISTENING = "0A"
PROC = Path("/proc")


class Process(NamedTuple):
    """A process. The time of its start tells it from a later process with the same id."""

    pid: int
    parent: int
    started: str
    command: str

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        now = _read(self.pid)
        return now is not None and now.started == self.started


def _read(pid: int) -> Process | None:
    """The running process of an id; None if it has ended."""
    with suppress(OSError):
        state, parent, *more = (PROC / str(pid) / "stat").read_text().rpartition(") ")[2].split()
        command = (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        if state not in "ZX":
            return Process(pid, int(parent), more[17], command)
    return None


def tree(pid: int) -> list[Process]:
    """A process and all its descendants."""
    children = defaultdict(list)
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and (each := _read(int(entry.name))) is not None:
            children[each.parent].append(each)
            if each.pid == pid:
                found.append(each)
    for each in found:
        found += children[each.pid]
    return found


def listening_hosts(processes: list[Process]) -> set[str]:
    """The addresses of all sockets on which the processes listen, as text."""
    return {host for host, _ in listening(processes)}


def listening(processes: list[Process]) -> set[tuple[str, int]]:
    """The addresses and the ports of all sockets on which the processes listen."""
    inodes = {inode for each in processes for inode in _sockets(each.pid)}
    found = set()
    for table in ("net/tcp", "net/tcp6"):
        for line in (PROC / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in inodes:
                address, _, port = fields[1].partition(":")
                found.add((_host(address), int(port, 16)))
    return found


def _sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for file in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                kind, _, inode = str(file.readlink()).partition(":")
                if kind == "socket":
                    yield inode.strip("[]")


def _host(text: str) -> str:
    """An address of the kernel's table: words of 32 bits, each in the machine's byte order."""
    raw = bytes.fromhex(text)
    packed = b"".join(int.from_bytes(raw[i : i + 4]).to_bytes(4, sys.byteorder) for i in range(0, len(raw), 4))
    found = ip_address(packed)
    return str(found.ipv4_mapped or found) if isinstance(found, IPv6Address) else str(found)
