"""The quotas of a server and of its tenants: bytes of memory, and requests that run or wait."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from telegrad_engine.errors import ServerBusy, SessionLimit, TelegradError
from telegrad_engine.session.memory_accounting import Accounts, Quota

from ..settings import Settings
from .principal import ANYONE

QUEUE_RETRY_S = 1
"""``Retry-After`` of a full queue, which moves on with every program."""
TENANT_SHARE = 0.75
"""The share of the server's queue that one tenant may take."""
OF_TENANT = "of this tenant run or wait, as many as one may have"
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
        too_much = _too_much(ServerBusy, "the server's sessions", " at the moment", "; or try again later")
        self.memory = Quota(settings.max_process_bytes, too_much)
        self.queue = Quota(settings.max_queued, _full(ServerBusy, "run or wait, as many as this server takes"))
        self._tenants: dict[str, TenantQuotas] = {}

    def of(self, tenant: str) -> TenantQuotas:
        """The quotas of a tenant."""
        found = self._tenants.get(tenant)
        if found is None:
            most = math.inf if tenant == ANYONE.tenant else self._settings.max_tenant_bytes
            memory = Quota(most, _too_much(SessionLimit, "the sessions of this tenant"), self.memory)
            found = self._tenants[tenant] = TenantQuotas(
                memory,
                Quota(TENANT_SHARE * self._settings.max_queued, _full(SessionLimit, OF_TENANT), self.queue),
                Accounts(self._settings.max_process_bytes, quota=memory),
            )
        return found

    @property
    def body_bytes(self) -> int:
        """The bytes that are reserved for the request bodies of all tenants."""
        return sum(quotas.bodies.total_bytes for quotas in self._tenants.values())

    def session_queue(self, tenant: str) -> Quota:
        """The queue of a new session of this tenant."""
        refusal = _full(SessionLimit, "run or wait for this session, as many as it takes")
        return Quota(self._settings.max_queued_per_session, refusal, self.of(tenant).queue)


def _too_much(error: type[TelegradError], whose: str, now: str = "", then: str = "") -> Callable[..., TelegradError]:
    """The error of a memory quota, with ``Retry-After`` unless the limit is too small in any case."""

    def refusal(limit: float, nbytes: int) -> TelegradError:
        text = (
            f"{whose} together may take {limit:.0f} bytes of memory; {nbytes} more are too many{now}. {ADVICE}{then}."
        )
        return error(text, quota="memory", **{} if nbytes <= limit else {"retry_after_s": None})

    return refusal


def _full(error: type[TelegradError], text: str) -> Callable[[float, int], TelegradError]:
    """The error of a full queue."""
    return lambda limit, requests: error(f"{limit:.0f} requests {text}", retry_after_s=QUEUE_RETRY_S)
