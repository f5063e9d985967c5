"""The program in which the Python blocks of a page run, one after another, as in an interactive session.

It reads one JSON text a line, with the ``source`` of a block and its ``place``, and answers with what the block printed
and then with a line that says whether it raised an exception. From a block with a magic on, IPython runs the blocks.
"""

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any


def cells(names: dict[str, Any]) -> Callable[[str], None]:
    """Return what runs a cell of a notebook, in IPython. It raises what the cell raises."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance(user_ns=names)
    return lambda source: shell.run_cell(source).raise_error()


notebook = None
names = {"__name__": "__main__"}
for line in sys.stdin:
    block = json.loads(line)
    try:
        if notebook is None and block["source"].startswith("%"):
            notebook = cells(names)
        if notebook is not None:
            notebook(block["source"])
        else:
            exec(compile(block["source"], block["place"], block["mode"]), names)
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        status = 1
    print(f"\n{block['mark']} {status}", flush=True)
