"""A session that is not durable, as files: one server writes them to hand it over, and the next one reads them once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from telegrad_engine.errors import SessionLost
from telegrad_engine.program.safetensors import Container
from telegrad_engine.session import snapshot

from .. import __version__
from ..journal.files import DataFolder, SessionFiles
from ..journal.packing import pack, unpack
from ..journal.store import Manifest
from .sequence import HostedSession
from .session_handle import SessionHandle


class Saved(NamedTuple):
    """A session's state, and the recorded answers of its senders."""

    state: Container
    senders: bytes


def save(session: HostedSession) -> Saved:
    """Save a session whose commands have ended. Raises NotSupported if it has no snapshot now."""
    return Saved(snapshot.save(session), pack(["senders", session.senders.dump()]))


def write(data: DataFolder, handle: SessionHandle, saved: Saved, epoch: int) -> SessionFiles:
    """Write the files. Raises ServerBusy, and leaves none, if that fails."""
    manifest = Manifest(
        id=handle.id,
        tenant=handle.tenant,
        peer=handle.peer,
        name=handle.name,
        device=handle.device,
        dtype=handle.dtype.name,
        seed=0,  # the state has the generator
        ttl_s=handle.ttl_s,
        heartbeats=handle.heartbeat_ttl_s is not None,
        created_at=handle.created_at,
        last_used_at=time.time(),  # its heartbeats do not arrive until another server has it
        epoch=epoch,
        server_version=__version__,
    )
    files = data.create(manifest)
    try:
        files.replace([saved.state], [saved.senders])
    except BaseException:
        remove(files)
        raise
    files.close()
    return files


def read(files: SessionFiles, restored: Callable[[bytes], HostedSession]) -> HostedSession:
    """The session, which ``restored`` makes from its state. Raises SessionLost if a file is damaged, and ServerBusy."""
    state = files.snapshot()
    if state is None:
        raise SessionLost("the session's state is not in its files")
    session = restored(state)
    for frame in files.frames():
        for _, senders in unpack(frame.payload):
            session.senders.load(senders)
    return session


def is_expired(manifest: Manifest, heartbeat_ttl_s: float) -> bool:
    """Whether nobody has used the session, or sent a heartbeat, in its time to live."""
    ttl_s = min(manifest.ttl_s, heartbeat_ttl_s) if manifest.heartbeats else manifest.ttl_s
    return manifest.last_used_at + ttl_s < time.time()


def remove(files: SessionFiles) -> None:
    """Delete the files. Raises ServerBusy."""
    files.close()
    files.withdraw()
    files.delete()
