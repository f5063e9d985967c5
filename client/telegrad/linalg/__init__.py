"""``torch.linalg``: the catalogue's ops that torch has there, under the same names and signatures.

``tg.linalg.norm`` is another function than ``tg.norm``, and ``tg.linalg.svd`` than ``tg.svd``, as in torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from telegrad_engine.errors import LinAlgError
from telegrad_engine.tensor.namespace import public_names

from ..exclusions import missing_attribute, publish
from ..tensor.handle import OPS

if TYPE_CHECKING:
    from ._linalg import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name not in public_names("torch.linalg"):
        raise missing_attribute("telegrad.linalg", "linalg", name)
    return publish(globals(), name, getattr(OPS.linalg, name))


def __dir__() -> list[str]:
    return ["LinAlgError", *public_names("torch.linalg")]


__all__ = ["LinAlgError"]
