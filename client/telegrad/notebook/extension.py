"""The IPython extension: ``%load_ext telegrad`` connects to ``TELEGRAD_URL``, if it is set, and adds magics."""

from __future__ import annotations

import os
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from telegrad_engine.errors import TelegradError

from ..profiler import profile
from ..sessions.session import Session, connect, current, known

MOST_ROWS = 20
"""The most rows of a profile's table."""


@magics_class
class TelegradMagics(Magics):
    """``%telegrad`` and ``%%telegrad_profile``."""

    @magic_arguments()
    @argument("url", nargs="?", help="A server's address; without it, the current session is shown.")
    @argument("--session", help="The id of a session to attach to.")
    @argument("--device", help="Where the tensors of a new session live.")
    @argument("--seed", type=int, help="The seed of a new session's random numbers.")
    @line_magic
    def telegrad(self, line: str) -> Session:
        """Connect to a server, or show the current session."""
        given = vars(parse_argstring(self.telegrad, line))
        return _connected(**given) if any(value is not None for value in given.values()) else current()

    @cell_magic
    def telegrad_profile(self, line: str, cell: str) -> None:
        """Run the cell, and print the time and the memory of each op in the session."""
        with profile(profile_memory=True) as profiled:
            self.shell.run_cell(cell)
        print(profiled.key_averages().table(sort_by="self_cpu_time_total", row_limit=MOST_ROWS))


def _connected(**options: Any) -> Session:
    """Connect. Raises UsageError, which a notebook shows as one line."""
    try:
        return connect(**options)
    except TelegradError as error:
        raise UsageError(str(error)) from None


def load(ipython: Any) -> None:
    """Add the magics, and connect to ``TELEGRAD_URL`` unless a session is open there. Raises UsageError."""
    ipython.register_magics(TelegradMagics)
    url, session = os.environ.get("TELEGRAD_URL"), known()
    if url and (session is None or session.closed or session.url != url.rstrip("/")):
        _connected(url=url)
