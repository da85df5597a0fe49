"""Notification sender: claims deliveries from their own queue and sends them.

Supervisors with a database connection run it, and servers for installations without such workers. Deliveries are tasks
with retries and dead letters like others, but take no slot of a worker: a channel that does not answer slows nothing
else. Each channel has at most two deliveries at a time.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.errors import AaiclickError, NotFoundError
from aaiclick.orchestration.notifications.channel_sender import deliver, load_settings
from aaiclick.orchestration.notifications.messages import build_message
from aaiclick.orchestration.retry_policy import RetryPolicy
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import queue
from aaiclick.store.engine.leases_and_outcomes import Claim, Failure, Success
from aaiclick.store.engine.notification_deliveries import has_undelivered, parse_task
from aaiclick.store.engine.notification_rules import get_channel
from aaiclick.store.enums import NOTIFICATION_QUEUE
from aaiclick.store.tenancy.orgs import get_org
from aaiclick.tracebacks import escape_text

if TYPE_CHECKING:
    from aaiclick.orchestration.notifications.channel_sender import ChannelSettings
    from aaiclick.orchestration.notifications.messages import Message
    from aaiclick.store.engine.notification_rules import Channel
    from aaiclick.store.postgres_connections import Connection

POLL_SECONDS = 0.5
MAX_DELIVERIES = 50
"""Deliveries in progress of one process."""

LEASE_SECONDS = 120.0
"""Longer than a delivery takes at most: leases are not renewed."""

_logger = logging.getLogger(__name__)


class NotificationSender:
    """Deliveries in progress. A slow channel does not delay others: each is acknowledged when it has ended."""

    def __init__(self) -> None:
        self._deliveries: set[asyncio.Task[Success | Failure]] = set()

    async def run_once(self, connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
        """Acknowledge ended deliveries and start others; counts those `delivered`, `failed` and `started`."""
        counts = await self._acknowledge(connection, now)
        counts["started"] = 0
        if not await has_undelivered(connection):
            return counts
        claims = await queue.claim(
            connection, worker_id=get_snowflake_id(), limit=MAX_DELIVERIES - len(self._deliveries),
            queues=[NOTIFICATION_QUEUE], lease_seconds=LEASE_SECONDS, now=now,
        )  # fmt: skip
        for claim in claims:
            self._deliveries.add(asyncio.create_task(_send(claim, *await _prepare(connection, claim))))
        counts["started"] = len(claims)
        return counts

    async def finish(self, connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
        """Wait for the deliveries in progress, and acknowledge them."""
        if self._deliveries:
            await asyncio.wait(self._deliveries)
        return await self._acknowledge(connection, now)

    def cancel(self) -> None:
        """Cancel the deliveries in progress: they are repeated when their leases have expired."""
        for delivery in self._deliveries:
            delivery.cancel()

    async def _acknowledge(self, connection: Connection, now: datetime | None) -> dict[str, int]:
        ended = {delivery for delivery in self._deliveries if delivery.done()}
        outcomes = [delivery.result() for delivery in ended if not delivery.cancelled()]
        successes = [outcome for outcome in outcomes if isinstance(outcome, Success)]
        failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
        if outcomes:
            await queue.acknowledge(connection, worker_id=0, successes=successes, failures=failures, now=now)
        self._deliveries -= ended
        return {"delivered": len(successes), "failed": len(failures)}


async def _prepare(
    connection: Connection, claim: Claim
) -> tuple[Message | None, Channel | None, ChannelSettings | AaiclickError | None]:
    """Load what a delivery needs: nothing if its channel or its incidents are gone."""
    try:
        name, ids = parse_task(claim.kwargs)
        org = await get_org(connection, claim.org_id)
        channel = await get_channel(connection, claim.org_id, name)
        message = await build_message(connection, channel, org.slug, claim.lease.task_id, ids)
        return message, channel, await load_settings(connection, channel, org.slug)
    except NotFoundError as error:
        _logger.warning("A notification was not sent: %s", error.what)
        return None, None, None
    except AaiclickError as error:  # a secret that is missing, or a task that is no delivery
        return None, None, error


async def _send(
    claim: Claim, message: Message | None, channel: Channel | None, settings: ChannelSettings | AaiclickError | None
) -> Success | Failure:
    try:
        if isinstance(settings, AaiclickError):
            raise settings
        if message is not None and channel is not None and settings is not None:
            await deliver(channel, settings, message)
    except Exception as error:
        if not isinstance(error, AaiclickError):
            _logger.exception("A delivery failed unexpectedly.")
        delay = RetryPolicy.from_json(claim.retry_policy).delay_seconds(claim.failures + 1)
        text = str(error) if isinstance(error, AaiclickError) else type(error).__name__
        return Failure(claim.lease, escape_text(text), type(error).__name__, delay_seconds=delay)
    return Success(claim.lease)
