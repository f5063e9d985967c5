"""A session that is not durable, as files: one server writes them to hand it over, and the next one reads them once."""

from __future__ import annotations

import time

from telegrad_engine.errors import SessionLost
from telegrad_engine.program.safetensors import Container
from telegrad_engine.session import snapshot

from .. import __version__
from ..journal.files import DataFolder
from ..journal.packing import pack, unpack
from ..journal.store import Manifest, SessionFiles
from .sequence import HostedSession
from .session_handle import SessionHandle


def save(session: HostedSession) -> tuple[Container, bytes]:
    """The state of a session whose commands have ended, and the recorded answers of its senders.

    Raises NotSupported if it has no snapshot now.
    """
    return snapshot.save(session), pack(["senders", session.senders.dump()])


def write(data: DataFolder, handle: SessionHandle, saved: tuple[Container, bytes], epoch: int) -> SessionFiles:
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
        files.replace(saved[:1], saved[1:])
    except BaseException:
        files.remove()
        raise
    files.close()
    return files


def read(files: SessionFiles, surroundings: snapshot.SessionConfig) -> HostedSession:
    """The session. Raises SessionLost if a file is damaged, ServerBusy, and the errors of restoring a snapshot."""
    state = files.snapshot()
    if state is None:
        raise SessionLost("the session's state is not in its files")
    session = snapshot.restore(state, HostedSession, **surroundings)
    for frame in files.frames():
        for _, senders in unpack(frame.payload):
            session.senders.load(senders)
    return session
