"""Operations on Objects. Tables of tasks that read or write hidden datasets are not found."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from aaiclick.api.field_types import Page
from aaiclick.api.objects import ColumnSchema, FileFormat, ObjectSchema, ObjectState, ObjectSummary, RowsResponse
from aaiclick.catalog.dataset_visibility import hidden_tables, hidden_task_ids
from aaiclick.data.errors import ConversionError
from aaiclick.data.io.literal_result_codec import EncodedLiteral
from aaiclick.data.io.literal_result_preview import describe_literal, export_literal, preview_literal
from aaiclick.data.runtime import inspect
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.database_access import Databases
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.operations.operation import databases_operation
from aaiclick.operations.pagination import read_cursor, write_cursor
from aaiclick.orchestration import table_audit
from aaiclick.orchestration.table_audit import TableEntry
from aaiclick.store.tables import literal_results, table_references
from aaiclick.store.tables.literal_results import StoredLiteral


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
    after = str(read_cursor(cursor) or "")
    if job_id is None and state != "missing":
        entries = await _list_existing(databases, actor, after, limit + 1)
    else:
        entries = await _list_registered(databases, actor, job_id, after, limit + 1)
    page = entries[:limit]
    hidden = await _hidden_tables(databases, actor, [entry.table_id for entry in page])
    items = [entry for entry in page if entry.table_id not in hidden and state in (None, entry.state)]
    return Page[ObjectSummary](
        items=[ObjectSummary.model_validate(entry) for entry in items],
        next=write_cursor(page[-1].table_id) if len(entries) > limit else None,
    )


async def _list_existing(databases: Databases, actor: Actor, after: str, limit: int) -> list[TableEntry]:
    infos = await inspect.list_objects(await databases.clickhouse(), after=after, limit=limit)
    async with databases.connect(as_owner=True) as owner:  # row-level security hides table references
        return await table_audit.describe_existing(owner, infos, actor.org_id)


async def _list_registered(
    databases: Databases, actor: Actor, job_id: int | None, after: str, limit: int
) -> list[TableEntry]:
    """Registered tables, and the literals of the job."""
    job_literals: list[StoredLiteral] = []
    async with databases.connect(as_owner=True) as owner:
        rows = await table_references.list_tables(
            owner, actor.org_id, job_id=job_id, after=table_audit.stored_name(after, actor.org_id), limit=limit
        )
        if job_id is not None:
            job_literals = await literal_results.list_job_literals(
                owner, job_id, actor.org_id, after=after, limit=limit
            )
    entries = {entry.table_id: entry for entry in await _describe_literals(job_literals)}
    tables = [row for row in rows if row.table_name not in entries]  # a literal is registered before its table exists
    if tables:
        registered = await table_audit.describe_registered(await databases.clickhouse(), tables, actor.org_id)
        entries |= {entry.table_id: entry for entry in registered}
    return [entries[name] for name in sorted(entries)][:limit]


async def _describe_literals(stored: Sequence[StoredLiteral]) -> list[TableEntry]:
    return [table_audit.make_literal_entry(literal, await _count_rows(literal)) for literal in stored]


async def _count_rows(literal: StoredLiteral) -> int:
    """Number of rows; 0 if a worker has stored an unreadable value."""
    try:
        return (await describe_literal(_encoded(literal), literal.completed_at)).info.rows
    except ConversionError:
        return 0


@databases_operation(Permission.READER)
async def get_object(databases: Databases, actor: Actor, table_id: str) -> ObjectSchema:
    """Get an Object with its columns."""
    literal = await _find_visible(databases, actor, table_id)
    if literal is not None:
        description = await describe_literal(_encoded(literal), literal.completed_at)
        entry = table_audit.make_literal_entry(literal, description.info.rows)
    else:
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
    literal = await _find_visible(databases, actor, table_id)
    if literal is not None:
        return RowsResponse(rows=await preview_literal(_encoded(literal), offset=offset, limit=limit))
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
    literal = await _find_visible(databases, actor, table_id)
    if literal is not None:
        return export_literal(_encoded(literal), format)
    return inspect.export_object(await databases.clickhouse(), table_id, format)


async def _find_visible(databases: Databases, actor: Actor, table_id: str) -> StoredLiteral | None:
    """The literal with this id, None if it is a table; raises ObjectNotFoundError if the actor may not see it."""
    async with databases.connect(as_owner=True) as owner:  # row-level security hides table references
        reader = await dataset_reader(owner, actor)
        literal = await literal_results.find_literal(owner, table_id, actor.org_id)
        if literal is None:
            is_hidden = bool(await hidden_tables(owner, reader, [table_id]))
        else:
            is_hidden = bool(await hidden_task_ids(owner, reader, [literal.task_id]))
    if is_hidden:
        raise inspect.object_not_found(table_id)
    return literal


def _encoded(literal: StoredLiteral) -> EncodedLiteral:
    return EncodedLiteral(literal.table_id, literal.text)


async def _hidden_tables(databases: Databases, actor: Actor, names: Sequence[str]) -> set[str]:
    """Tables that the actor may not see: tasks of DAGs wrote them from datasets that it may not read."""
    async with databases.connect(as_owner=True) as owner:  # row-level security hides table references
        return await hidden_tables(owner, await dataset_reader(owner, actor), names)
