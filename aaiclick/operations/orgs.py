"""Operations on organisations: the actor's own, or all for the operator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import CreateOrgRequest, Org, UpdateOrgRequest, WhoamiResponse
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.database_access import Databases
from aaiclick.operations.operation import databases_operation, operation, write_audit
from aaiclick.operations.pagination import make_page, read_uuid_cursor
from aaiclick.store.engine import pause
from aaiclick.store.tenancy import orgs
from aaiclick.store.tenancy.orgs import ClaimLimits, OrgRow

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@operation(Permission.READER, changes=False)
async def whoami(_connection: Connection, actor: Actor) -> WhoamiResponse:
    """Get the organisation, actor and scopes of the credential."""
    return WhoamiResponse(org_id=actor.org_id, actor=actor.name, scopes=sorted(actor.scopes))


@databases_operation(Permission.READER)
async def list_orgs(databases: Databases, actor: Actor, *, cursor: str | None = None, limit: int = 100) -> Page[Org]:
    """List organisations: the actor's own, or all for the operator."""
    after = read_uuid_cursor(cursor)
    async with databases.connect(as_owner=Permission.OPERATOR in actor.permissions) as connection:
        rows = await orgs.list_orgs(connection, after=after, limit=limit + 1)
    return make_page(rows, limit, _to_org, lambda row: row.id)


@databases_operation(Permission.READER)
async def get_org(databases: Databases, actor: Actor, org: str) -> Org:
    """Get an organisation by its slug or id; row-level security hides others from all but the operator."""
    async with databases.connect(as_owner=Permission.OPERATOR in actor.permissions) as connection:
        return _to_org(await orgs.find_org(connection, org))


@operation(Permission.OPERATOR, as_owner=True)
async def create_org(connection: Connection, actor: Actor, new_org: CreateOrgRequest) -> Org:
    """Create an organisation. Its ClickHouse database is created at its first use."""
    limits = ClaimLimits(**new_org.model_dump(exclude={"name", "slug"}))
    row = await orgs.create_org(connection, name=new_org.name, slug=new_org.slug, limits=limits)
    await write_audit(connection, actor, "org.create", row.id, {"slug": row.slug})
    return _to_org(row)


@operation(Permission.OPERATOR, as_owner=True)
async def update_org(connection: Connection, actor: Actor, org: str, changes: UpdateOrgRequest) -> Org:
    """Set the weight and limits of an organisation, and its name if given; an omitted limit is removed."""
    org_id = (await orgs.find_org(connection, org)).id
    limits = changes.model_dump(exclude={"name"})
    row = await orgs.update_org(connection, org_id, name=changes.name, limits=ClaimLimits(**limits))
    detail = changes.model_dump(exclude_none=True) | {"name": row.name}
    await write_audit(connection, actor, "org.change", org_id, detail)
    return _to_org(row)


@operation(Permission.OPERATOR, as_owner=True)
async def pause_org(connection: Connection, actor: Actor, org: str) -> None:
    """Pause an organisation: none of its tasks starts."""
    org_id = (await orgs.find_org(connection, org)).id
    await pause.pause_org(connection, org_id)
    await write_audit(connection, actor, "org.pause", org_id)


@operation(Permission.OPERATOR, as_owner=True)
async def resume_org(connection: Connection, actor: Actor, org: str) -> None:
    """Resume a paused organisation."""
    org_id = (await orgs.find_org(connection, org)).id
    await pause.resume_org(connection, org_id)
    await write_audit(connection, actor, "org.resume", org_id)


async def act_for_org(connection: Connection, actor: Actor, org: str) -> Actor:
    """The operator as an actor of another organisation, where its audit entries are written."""
    return replace(actor, org_id=(await orgs.find_org(connection, org)).id)


def _to_org(row: OrgRow) -> Org:
    return Org.model_validate(row, from_attributes=True)
