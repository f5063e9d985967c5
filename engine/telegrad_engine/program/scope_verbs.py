"""The verbs that begin something which a later instruction ends: a checkpoint, a profile, a labelled range of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidOperation, InvalidValue
from ..schema.parameters import Arrays, Bool, Int, Str
from .verbs import verb

MAX_EVENTS, MAX_RANGES = 200_000, 1_000


@verb
def checkpoint(
    session: Any,
    out: Sequence[str],
    inputs: Arrays = (),
    *,
    checkpoint: Str,
    preserve_rng_state: Bool = True,
    determinism_check: Bool = True,
    early_stop: Bool = True,
    selective: Bool = False,
) -> None:
    """Save nothing for backward of what runs up to ``end_checkpoint``, but run it again when backward needs it.

    ``checkpoint`` is the client's own id of it; one of this id that is open ends. ``inputs`` must not be modified in
    place until then; other tensors may. The second run has the random numbers of the first with
    ``preserve_rng_state``, is over as soon as nothing is missing with ``early_stop``, and raises CheckpointError with
    ``determinism_check`` if shapes or dtypes differ. A ``selective`` one takes ``save_results``.
    """
    options = {"preserve": preserve_rng_state, "compare": determinism_check, "early_stop": early_stop}
    session.checkpoints.begin(checkpoint, inputs, selective, **options)


@verb
def save_results(
    session: Any, out: Sequence[str], tensors: Arrays, *, checkpoint: Str, allow_mutation: Bool = False
) -> None:
    """Have a selective checkpoint save ``tensors``, all outputs of the last instruction, rather than recompute them.

    If they are modified in place, backward raises an error, or with ``allow_mutation`` recomputes them. Views and
    random draws are always recomputed. Nothing happens if the checkpoint has ended.
    """
    session.checkpoints.save_results(checkpoint, tensors, allow_mutation)


@verb
def end_checkpoint(session: Any, out: Sequence[str], *, checkpoint: Str) -> None:
    """End a checkpoint and those inside it; nothing if it has ended, as all do where an instruction fails."""
    session.checkpoints.end(checkpoint)


# Profiles ---------------------------------------------------------------------------------------------


@verb
def start_profile(
    session: Any,
    out: Sequence[str],
    *,
    record_shapes: Bool = False,
    profile_memory: Bool = False,
    max_events: Int = 20_000,
) -> None:
    """Record where the time goes of what runs from now on, op by op; ``GET …/profile`` tells.

    The first ``max_events`` ranges are kept one by one, 200,000 at most; the averages have all of them.
    """
    from ..profiler import profile

    if session.profile is not None:
        raise InvalidOperation("a profile of this session runs already; stop_profile ends it")
    if not 0 <= max_events <= MAX_EVENTS:
        raise InvalidValue(f"max_events is 0 to {MAX_EVENTS}, not {max_events}")
    session.profile = profile(record_shapes=record_shapes, profile_memory=profile_memory, max_events=max_events)
    session.profile.start()


@verb
def stop_profile(session: Any, out: Sequence[str]) -> None:
    """End the profile of this session. It can be read until the next one ends."""
    if session.profile is None:
        raise InvalidOperation("no profile of this session runs; start_profile begins one")
    session.profile.stop()
    session.profile, session.profiled, session.ranges = None, session.profile, []


@verb
def begin_range(session: Any, out: Sequence[str], *, name: Str) -> None:
    """Label what runs up to the ``end_range`` that belongs to it, while a profile runs."""
    from ..profiler import record_function

    if session.profile is None:
        return
    if len(session.ranges) == MAX_RANGES:
        raise InvalidOperation(f"at most {MAX_RANGES} ranges can be open inside each other")
    session.ranges.append(record_function(name).__enter__())


@verb
def end_range(session: Any, out: Sequence[str]) -> None:
    """End the innermost labelled range; nothing if there is none, as after a profile has ended."""
    if session.ranges:
        session.ranges.pop().__exit__()
