"""The cache of programs, which a client names by the digest of their text."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, Protocol

from ..errors import InvalidValue, UnknownProgram
from .program import Program, read_program

MAX_PROGRAMS, MAX_BYTES = 512, 256 * 2**20
"""The maximum number and total bytes of cached programs; the least recently used are evicted."""

Make = Callable[[str], Program]
"""Makes a program for a tenant."""


class Programs(Protocol):
    """A cache of templates, as sessions use it."""

    def read(self, text: str, claimed: str | None, max_depth: int, /) -> Program:
        """Read and cache the program of this text. Raises InvalidValue if its digest is not the claimed one."""

    def find(self, known_by: Any, make: Make | None = None, /) -> Program:
        """Return the program with this digest. Raises UnknownProgram if it was never read here, or was evicted.

        With ``make``, it is made in these cases; then ``known_by`` is no string, so that no client can name it.
        """


class ProgramCache:
    """The cache of templates for all sessions of a process; thread-safe.

    A program that was used once is not kept, because most of these are not used again; the text is, if it was read.
    Tenants share the limits, but do not find each other's programs: otherwise a digest would tell what another tenant
    has sent.
    """

    def __init__(self, most: int = MAX_PROGRAMS, most_bytes: int = MAX_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._programs: OrderedDict[tuple[str, Any], Program | str] = OrderedDict()
        """The cached programs by tenant and digest."""
        self._bytes = 0
        """The total estimated memory of the cached programs."""
        self.hits = self.misses = 0
        """How often a program was found by its digest, and how often it was not."""
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._programs)

    @property
    def nbytes(self) -> int:
        """The estimated memory of the cached programs."""
        return self._bytes

    def of(self, tenant: str) -> TenantPrograms:
        """Return the cache as a tenant sees it."""
        return TenantPrograms(partial(self.read, tenant=tenant), partial(self.find, tenant=tenant))

    def read(self, text: str, claimed: str | None, max_depth: int, tenant: str = "") -> Program:
        """Read and cache the program of this text. Raises InvalidValue if its digest is not the claimed one."""
        program = read_program(text, max_depth, tenant)
        if claimed is not None and claimed != program.digest:
            raise InvalidValue(f"the program's digest is {program.digest}, not {claimed:.80}")
        key = tenant, program.digest
        with self._lock:
            if key not in self._programs:
                self._keep(key, text)
        return program

    def find(self, known_by: Any, make: Make | None = None, tenant: str = "") -> Program:
        """Return the program with this digest, as :meth:`Programs.find`."""
        key = tenant, known_by
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                if isinstance(program, str):
                    program = read_program(program, sys.maxsize, tenant) if make is None else make(tenant)
                    program.is_new = False
                    self._keep(key, program)
                else:
                    self._programs.move_to_end(key)
                self.hits += 1
                return program
            self.misses += 1
            if make is None:
                raise UnknownProgram(f"no program {known_by:.80} is remembered here; send its text")
            self._keep(key, "")
        return make(tenant)

    def _keep(self, key: tuple[str, Any], program: Program | str) -> None:
        self._bytes += _size(program) - _size(self._programs.pop(key, ""))
        self._programs[key] = program
        while self._programs and (len(self._programs) > self._most or self._bytes > self._most_bytes):
            self._bytes -= _size(self._programs.popitem(last=False)[1])


def _size(program: Program | str) -> int:
    return len(program) if isinstance(program, str) else program.size


class TenantPrograms(NamedTuple):
    """The methods of a cache, for the programs of one tenant."""

    read: Callable[[str, str | None, int], Program]
    find: Callable[..., Program]


MEMORY = ProgramCache()
"""The program cache of this process."""
