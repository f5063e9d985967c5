"""A hook of the build: the type stubs are written before the package is installed or packed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StubsHook(BuildHookInterface):
    """Writes the stubs of the SDK, from the sources of the engine in the same checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write them; hatchling calls this before each build, including that of an editable installation."""
        engine = Path(self.root).parent / "engine"
        if not engine.is_dir():
            return  # a source distribution, which has them
        sys.path.insert(0, str(engine))
        from telegrad_engine.stubs import client_stubs, write

        write(Path(self.root), client_stubs())
