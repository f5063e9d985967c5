"""Programs: the only way anything executes in a session, and the encodings they travel in."""

from . import client_verbs as client_verbs
from . import procedures as procedures
from . import scope_verbs as scope_verbs
from .instructions import Instruction, parse_program
from .verbs import VERBS

__all__ = ["VERBS", "Instruction", "parse_program"]
