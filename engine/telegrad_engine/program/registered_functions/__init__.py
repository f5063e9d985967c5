"""Functions defined as data: registered by a client in any language, checked, and run by the server.

The server never runs client code. A definition (:mod:`.function`) has programs, which are read once (:mod:`.reader`)
into steps (:mod:`.steps`, :mod:`.control`) and run in a scope (:mod:`.blocks`). A session finds functions by name
(:mod:`.library`), including those that the operator installed (:mod:`.installed`).
"""

from . import control as _control
from . import steps as _steps
from .budget import Budget
from .function import Applicable, FunctionProgram
from .installed import Installed
from .library import SHARED, Foreign, Library, SessionLibrary, from_entry, installed_library, permissions
from .steps import WRITES_TO_INPUT
from .verify import verify

__all__ = [
    "SHARED",
    "WRITES_TO_INPUT",
    "Applicable",
    "Budget",
    "Foreign",
    "FunctionProgram",
    "Installed",
    "Library",
    "SessionLibrary",
    "from_entry",
    "installed_library",
    "permissions",
    "verify",
]
_ = _control, _steps
