"""The quotas of a server and of its tenants: bytes of memory, and requests that run or wait."""

from __future__ import annotations

import math
from typing import NamedTuple

from telegrad_engine.errors import ServerBusy, SessionLimit, TelegradError
from telegrad_engine.session.memory_accounting import Accounts
from telegrad_engine.session.quota import Quota

from ..settings import Settings
from .principal import ANYONE

QUEUE_RETRY_S = 1
"""``Retry-After`` of a full queue, which moves on with every program."""
TENANT_SHARE = 0.75
"""The share of the server's queue that one tenant may take."""
ADVICE = "Free tensors that are not needed, or end sessions (`telegrad sessions list` shows them)"


class TenantQuotas(NamedTuple):
    """The quotas of one tenant, which are parts of the server's."""

    memory: Quota
    queue: Quota
    bodies: Accounts
    """The memory account of its request bodies, which counts towards ``memory``."""


class Quotas:
    """The quotas of a server. Tenants without keys have no memory limit of their own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.memory = Quota(settings.max_process_bytes, _process_memory)
        self.queue = Quota(settings.max_queued, _full_queue)
        self._tenants: dict[str, TenantQuotas] = {}

    def of(self, tenant: str) -> TenantQuotas:
        """The quotas of a tenant."""
        found = self._tenants.get(tenant)
        if found is None:
            most = math.inf if tenant == ANYONE.tenant else self._settings.max_tenant_bytes
            memory = Quota(most, _tenant_memory, self.memory)
            found = self._tenants[tenant] = TenantQuotas(
                memory,
                Quota(TENANT_SHARE * self._settings.max_queued, _tenant_queue, self.queue),
                Accounts(self._settings.max_process_bytes, quota=memory),
            )
        return found

    @property
    def body_bytes(self) -> int:
        """The bytes that are reserved for the request bodies of all tenants."""
        return sum(quotas.bodies.total_bytes for quotas in self._tenants.values())

    def session_queue(self, tenant: str) -> Quota:
        """The queue of a new session of this tenant."""
        return Quota(self._settings.max_queued_per_session, _session_queue, self.of(tenant).queue)


def _process_memory(limit: float, nbytes: int) -> TelegradError:
    text = (
        f"the server's sessions together may take {limit:.0f} bytes of memory; {nbytes} more are too many at the moment"
    )
    return _memory(ServerBusy, f"{text}. {ADVICE}; or try again later.", limit, nbytes)


def _tenant_memory(limit: float, nbytes: int) -> TelegradError:
    text = f"the sessions of this tenant together may take {limit:.0f} bytes of memory; {nbytes} more are too many"
    return _memory(SessionLimit, f"{text}. {ADVICE}.", limit, nbytes)


def _memory(error: type[TelegradError], text: str, limit: float, nbytes: int) -> TelegradError:
    """The error for memory, with ``Retry-After`` unless the limit is too small in any case."""
    return error(text, quota="memory", **{} if nbytes <= limit else {"retry_after_s": None})


def _full_queue(limit: float, requests: int) -> TelegradError:
    return ServerBusy(f"{limit:.0f} requests run or wait, as many as this server takes", retry_after_s=QUEUE_RETRY_S)


def _tenant_queue(limit: float, requests: int) -> TelegradError:
    text = f"{limit:.0f} requests of this tenant run or wait, as many as one may have"
    return SessionLimit(text, retry_after_s=QUEUE_RETRY_S)


def _session_queue(limit: float, requests: int) -> TelegradError:
    text = f"{limit:.0f} requests run or wait for this session, as many as it takes"
    return SessionLimit(text, retry_after_s=QUEUE_RETRY_S)
