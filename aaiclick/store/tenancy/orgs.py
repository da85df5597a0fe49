"""Organisations and their limits, managed by the operator of the installation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


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


@dataclass(frozen=True, slots=True)
class OrgRow:
    """An organisation."""

    id: UUID
    name: str
    slug: str
    weight: int
    max_running: int | None
    rate_per_second: float | None
    rate_burst: int | None
    paused_at: datetime | None
    created_at: datetime


async def create_org(connection: Connection, *, name: str, slug: str, limits: ClaimLimits | None = None) -> OrgRow:
    limits = limits or ClaimLimits()
    try:
        row = await connection.fetchrow(
            statement("insert_org"), name, slug, limits.weight, limits.max_running, limits.rate_per_second, limits.burst
        )
    except asyncpg.UniqueViolationError:
        raise ConflictError(f"There is an org {slug!r} already.", remedy="Choose another slug.") from None
    assert row is not None  # noqa: S101  (INSERT … RETURNING)
    return OrgRow(**row)


async def list_orgs(connection: Connection, *, after: UUID | None = None, limit: int = 100) -> list[OrgRow]:
    return [OrgRow(**row) for row in await connection.fetch(statement("list_orgs"), after, limit)]


async def get_org(connection: Connection, org_id: UUID) -> OrgRow:
    return _to_org(await connection.fetchrow(statement("get_org"), org_id), org_id)


async def find_org(connection: Connection, slug_or_id: str) -> OrgRow:
    """Find an org by slug or id; raises NotFoundError."""
    return _to_org(await connection.fetchrow(statement("find_org"), slug_or_id), slug_or_id)


async def update_org(connection: Connection, org_id: UUID, *, name: str | None, limits: ClaimLimits) -> OrgRow:
    """Set the limits of an org, and its name unless it is None."""
    row = await connection.fetchrow(
        statement("update_org"),
        org_id, name, limits.weight, limits.max_running, limits.rate_per_second, limits.burst,
    )  # fmt: skip
    return _to_org(row, org_id)


async def has_several_orgs(connection: Connection) -> bool:
    """Whether the installation has more than one organisation; needs the owner's connection."""
    return bool(await connection.fetchval(statement("has_several_orgs")))


def _to_org(row: asyncpg.Record | None, slug_or_id: UUID | str) -> OrgRow:
    if row is None:
        raise NotFoundError(f"There is no org {slug_or_id!s:.120}.", remedy="'aaiclick org ls' lists them.")
    return OrgRow(**row)
