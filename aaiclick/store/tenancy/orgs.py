"""Organisations and their limits, managed by the operator of the installation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.connections import Connection


@dataclass(frozen=True, slots=True)
class ClaimLimits:
    """Weight and limits of an org or a queue for claims."""

    weight: int = 1
    max_running: int | None = None
    rate_per_second: float | None = None
    rate_burst: int | None = None

    @property
    def burst(self) -> int | None:
        """The burst of the rate limit; by default the rate of one second."""
        if self.rate_per_second is None:
            return None
        return self.rate_burst or max(1, round(self.rate_per_second))


async def create_org(
    connection: Connection, *, name: str, slug: str, limits: ClaimLimits | None = None
) -> asyncpg.Record:
    limits = limits or ClaimLimits()
    try:
        row = await connection.fetchrow(
            statement("insert_org"), name, slug, limits.weight, limits.max_running, limits.rate_per_second, limits.burst
        )
    except asyncpg.UniqueViolationError:
        raise ConflictError(f"There is an org {slug!r} already.", remedy="Choose another slug.") from None
    assert row is not None  # noqa: S101  (INSERT … RETURNING)
    return row


async def list_orgs(connection: Connection, *, after: UUID | None = None, limit: int = 100) -> list[asyncpg.Record]:
    return await connection.fetch(statement("list_orgs"), after, limit)


async def get_org(connection: Connection, org_id: UUID) -> asyncpg.Record:
    row = await connection.fetchrow(statement("get_org"), org_id)
    if row is None:
        raise _unknown_org(str(org_id))
    return row


async def find_org(connection: Connection, slug: str) -> asyncpg.Record:
    row = await connection.fetchrow(statement("find_org_by_slug"), slug)
    if row is None:
        raise _unknown_org(slug)
    return row


async def update_org(connection: Connection, org_id: UUID, *, name: str, limits: ClaimLimits) -> asyncpg.Record:
    row = await connection.fetchrow(
        statement("update_org"),
        org_id, name, limits.weight, limits.max_running, limits.rate_per_second, limits.burst,
    )  # fmt: skip
    if row is None:
        raise _unknown_org(str(org_id))
    return row


async def has_several_orgs(connection: Connection) -> bool:
    """Whether the installation has more than one organisation; needs the owner's connection."""
    return bool(await connection.fetchval(statement("has_several_orgs")))


def _unknown_org(slug_or_id: str) -> NotFoundError:
    return NotFoundError(f"There is no org {slug_or_id}.", remedy="'aaiclick org ls' lists them.")
