"""What each op is tested with: ``CASES[op.key]`` lists its cases.

The files have the names of the files of ops. An op without cases has a test of its own.
"""

import importlib
import pkgutil

from telegrad_engine.schema.op import Op

from .stand_ins import Case, Cases

CASES: Cases = {}
for _family in pkgutil.walk_packages(__path__, f"{__name__}."):
    CASES |= getattr(importlib.import_module(_family.name), "CASES", {})


def cases_of(op: Op) -> list[Case]:
    """The cases of an op; an empty list if it has none."""
    return CASES.get(op.key, [])
