"""A hook of the build: the type stubs are written before the package is installed or packed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StubsHook(BuildHookInterface):
    """Writes the stubs of the engine, from its own sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write them; hatchling calls this before each build, including that of an editable installation."""
        sys.path.insert(0, self.root)
        from telegrad_engine.stubs import engine_stubs, write

        write(Path(self.root), engine_stubs())
