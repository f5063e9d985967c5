"""Neural network modules, as ``torch.nn``: the parameters live in the session, the modules in the client.

The public classes of these files of :mod:`telegrad.nn.modules` are names of this package; their functions are in
:mod:`telegrad.nn.functional`. ``import X as X`` tells type checkers that X is exported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..exclusions import attribute_of
from . import attention as attention
from . import functional as functional
from . import init as init
from . import utils as utils
from .composed_functions import LinearCrossEntropyOptions as LinearCrossEntropyOptions
from .modules.module import Module as Module
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter
from .parameter import UninitializedBuffer as UninitializedBuffer
from .parameter import UninitializedParameter as UninitializedParameter

if TYPE_CHECKING:
    from .modules.activation import *  # noqa: F403
    from .modules.adaptive import *  # noqa: F403
    from .modules.batchnorm import *  # noqa: F403
    from .modules.container import *  # noqa: F403
    from .modules.conv import *  # noqa: F403
    from .modules.distance import *  # noqa: F403
    from .modules.dropout import *  # noqa: F403
    from .modules.lazy import *  # noqa: F403
    from .modules.linear import *  # noqa: F403
    from .modules.loss import *  # noqa: F403
    from .modules.multihead_attention import *  # noqa: F403
    from .modules.normalization import *  # noqa: F403
    from .modules.padding import *  # noqa: F403
    from .modules.pooling import *  # noqa: F403
    from .modules.rearranging import *  # noqa: F403
    from .modules.rnn import *  # noqa: F403
    from .modules.sparse import *  # noqa: F403
    from .modules.transformer import *  # noqa: F403

FILES = (
    "activation adaptive batchnorm container conv distance dropout lazy linear loss multihead_attention normalization "
    "padding pooling rearranging rnn sparse transformer"
)
UNPUBLISHED = {"LazyModuleMixin", "NonDynamicallyQuantizableLinear"}
"""Public classes of these files that torch.nn does not have either."""


def _classes(file: str) -> dict[str, type]:
    """Return the public classes that a file of ``modules`` defines, by name."""
    found = vars(import_module(f"{__name__}.modules.{file}"))
    own = {name for name, kind in found.items() if isinstance(kind, type) and kind.__module__ == found["__name__"]}
    return {name: found[name] for name in own - UNPUBLISHED if not name.startswith("_")}


for _file in FILES.split():
    globals().update(_classes(_file))
__getattr__ = attribute_of("nn")
