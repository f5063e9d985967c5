"""Durable sessions of the data folder that the directory does not have, or has under an older epoch.

A server without a cluster had the folder, or the directory's database was lost. The first worker of a cluster adds the
sessions to the directory before it joins. Later workers need not, because only workers write to the folder by then.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

from telegrad_engine.errors import SessionExists

from ..journal.files import DataFolder
from ..journal.store import Manifest
from ..sessions.schemas import Session
from .directory import Directory

logger = logging.getLogger(__name__)


def discover(directory: Directory, data: DataFolder, heartbeat_ttl_s: float) -> None:
    """Add the durable sessions that no worker has.

    Raises DatabaseUnavailable, and ServerBusy if the folder cannot be read.
    """
    begun = time.time()
    if any(worker.alive and worker.overdue_s < 0 for worker in directory.workers()):
        return
    known, count = directory.epochs(), 0
    for manifest in data.manifests():
        # A session with a known epoch is as its last worker left it. A new one is about to be added by its worker.
        if manifest.epoch > known.get(manifest.id, -1) and manifest.created_at < begun:
            count += _add(directory, manifest, heartbeat_ttl_s)
    if count:
        logger.info("%s durable sessions in the data folder are now in the directory", count)


def _add(directory: Directory, manifest: Manifest, heartbeat_ttl_s: float) -> bool:
    """Add a session. Return whether its name was free."""
    description = _description(manifest, heartbeat_ttl_s).model_dump(mode="json")
    try:
        directory.add_found(manifest.id, manifest.tenant, manifest.epoch, manifest.device, description, manifest.name)
    except SessionExists:
        logger.error(
            "session %.6s… in the data folder is not in the directory, which has another one of its tenant that is "
            "called %r; `telegrad serve` on this folder can rename it",
            manifest.id,
            manifest.name,
        )
        return False
    return True


def _description(manifest: Manifest, heartbeat_ttl_s: float) -> Session:
    return Session(
        id=manifest.id,
        tenant=manifest.tenant,
        name=manifest.name,
        device=manifest.device,
        dtype=manifest.dtype,
        created_at=datetime.fromtimestamp(manifest.created_at, UTC),
        last_used_at=datetime.fromtimestamp(manifest.last_used_at, UTC),
        expires_at=datetime.fromtimestamp(manifest.last_used_at + manifest.ttl_s, UTC),
        ttl_s=manifest.ttl_s,
        heartbeat_ttl_s=heartbeat_ttl_s if manifest.heartbeats else None,
        durable=True,
        sequence=0,  # its journal has it, which is read when the session is used
    )
