"""Programs, which are the only way to run anything in a session (program.py), and their encodings."""

from . import checkpoint_sections as checkpoint_sections
from . import procedures as procedures
from . import registered_functions as registered_functions
from .instructions import Instruction, parse_program
from .verbs import VERBS

__all__ = ["VERBS", "Instruction", "parse_program"]
