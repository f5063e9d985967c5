"""The program in which the Python blocks of a page run, one after another, as in an interactive session.

It reads one JSON text a line, with the ``source`` of a block and its ``place``, and answers with what the block printed
and then with a line that says whether it raised an exception.
"""

import json
import sys
import traceback

names = {"__name__": "__main__"}
for line in sys.stdin:
    block = json.loads(line)
    try:
        exec(compile(block["source"], block["place"], block["mode"]), names)
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        status = 1
    print(f"\n{block['mark']} {status}", flush=True)
