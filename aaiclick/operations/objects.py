"""Operations on Objects. Tables of tasks that read or write hidden datasets are not found."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from aaiclick.api.field_types import Page
from aaiclick.api.objects import ColumnSchema, FileFormat, ObjectSchema, ObjectState, ObjectSummary, RowsResponse
from aaiclick.catalog.visibility import hidden_tables
from aaiclick.data.runtime import inspect
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.databases import Databases
from aaiclick.operations.operation import databases_operation
from aaiclick.operations.pagination import read_cursor, write_cursor
from aaiclick.operations.visibility import dataset_reader
from aaiclick.orchestration import table_audit
from aaiclick.store.tables import table_references

if TYPE_CHECKING:
    pass


@databases_operation(Permission.READER)
async def list_objects(
    databases: Databases,
    actor: Actor,
    *,
    job_id: int | None = None,
    state: ObjectState | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[ObjectSummary]:
    """List Objects by table, optionally only those of a job or in a state.

    Tables that are missing in ClickHouse are only listed for a job or their state.
    """
    after, endpoint = str(read_cursor(cursor) or ""), await databases.clickhouse()
    if job_id is None and state != "missing":
        infos = await inspect.list_objects(endpoint, after=after, limit=limit + 1)
        async with databases.connect(as_owner=True) as owner:  # row-level security hides table references
            entries = await table_audit.describe_existing(owner, infos, actor.org_id)
    else:
        stored_after = table_audit.stored_name(after, actor.org_id)
        async with databases.connect(as_owner=True) as owner:
            rows = await table_references.list_tables(
                owner, actor.org_id, job_id=job_id, after=stored_after, limit=limit + 1
            )
        entries = await table_audit.describe_registered(endpoint, rows, actor.org_id)
    page = entries[:limit]
    hidden = await _hidden_tables(databases, actor, [entry.table_id for entry in page])
    items = [entry for entry in page if entry.table_id not in hidden and state in (None, entry.state)]
    return Page[ObjectSummary](
        items=[ObjectSummary.model_validate(entry) for entry in items],
        next=write_cursor(page[-1].table_id) if len(entries) > limit else None,
    )


@databases_operation(Permission.READER)
async def get_object(databases: Databases, actor: Actor, table_id: str) -> ObjectSchema:
    """Get an Object with its columns."""
    await _require_visible(databases, actor, table_id)
    description = await inspect.describe_object(await databases.clickhouse(), table_id)
    async with databases.connect(as_owner=True) as owner:
        [entry] = await table_audit.describe_existing(owner, [description.info], actor.org_id)
    return ObjectSchema(
        **ObjectSummary.model_validate(entry).model_dump(),
        shape=description.shape,
        columns=[ColumnSchema(name=name, type=column_type) for name, column_type in description.columns],
    )


@databases_operation(Permission.READER)
async def preview_object(
    databases: Databases, actor: Actor, table_id: str, *, offset: int = 0, limit: int = 100
) -> RowsResponse:
    """Get rows of an Object in their order."""
    await _require_visible(databases, actor, table_id)
    rows = await inspect.preview_object(await databases.clickhouse(), table_id, offset=offset, limit=limit)
    return RowsResponse(rows=rows)


@databases_operation(Permission.READER)
async def export_object(
    databases: Databases,
    actor: Actor,
    table_id: str,
    format: FileFormat = "jsonl",  # noqa: A002
) -> AsyncGenerator[bytes]:
    """Stream all rows of an Object in their order as a file."""
    await _require_visible(databases, actor, table_id)
    return inspect.export_object(await databases.clickhouse(), table_id, format)


async def _require_visible(databases: Databases, actor: Actor, table_id: str) -> None:
    if await _hidden_tables(databases, actor, [table_id]):
        raise inspect.object_not_found(table_id)


async def _hidden_tables(databases: Databases, actor: Actor, names: Sequence[str]) -> set[str]:
    """Tables that the actor may not see: tasks of DAGs wrote them from datasets that it may not read."""
    async with databases.connect(as_owner=True) as owner:  # row-level security hides table references
        return await hidden_tables(owner, await dataset_reader(owner, actor), names)
