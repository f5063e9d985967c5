"""Foresight: a loop's next message is most likely one that was sent before, and then there is little to find out.

Rounds of a loop record the same instructions. What a recorder sent twice is kept as a path of steps (:mod:`.steps`),
each an instruction without ids. While the next message goes along such a path, an instruction that comes is only
compared with the step that is due, and an op's shapes, dtypes and place in the graph are those of last time
(:mod:`.front`). Where the path ends as an earlier message did, so does the packing: its digest is known.

Nothing depends on a guess. Where the recording leaves every known path, what it went along so far becomes ordinary
instructions again (:mod:`.rounds`), and it goes on as if there were no foresight. See docs/decisions/0022.
"""

from .learning import Foresight, Notes
from .rounds import Round

__all__ = ["Foresight", "Notes", "Round"]
