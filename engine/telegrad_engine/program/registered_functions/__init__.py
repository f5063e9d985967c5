"""Functions defined as data: registered by a client in any language, checked, and run by the server.

The server never runs client code. A definition (:mod:`.function`) has programs, which are read once (:mod:`.reader`)
into blocks of steps that run in a scope (:mod:`.blocks`); :mod:`.steps` declares each instruction. A session finds
functions by name (:mod:`.library`), including those that the operator installed.
"""

from .function import Applicable, Foreign, FunctionProgram, Installed, from_entry
from .library import SHARED, Library, SessionLibrary, check_derivative, installed_library, permissions
from .limits import Budget
from .steps import WRITES_TO_INPUT

__all__ = ["SHARED", "Library", "SessionLibrary", "installed_library", "permissions"]
__all__ += ["Applicable", "Budget", "Foreign", "FunctionProgram", "Installed", "from_entry"]
__all__ += ["WRITES_TO_INPUT", "check_derivative"]
