"""The operators `postgres_read` and `postgres_write`: tables of another PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from aaiclick.catalog.execution.external_postgres import (
    ExternalColumn,
    connect_external,
    describe_relation,
    quote,
    quote_table,
    select_columns,
    to_columns,
)
from aaiclick.catalog.execution.operator_run import OperatorRun
from aaiclick.catalog.operators.config import PostgresReadConfig, PostgresWriteConfig
from aaiclick.data import create_object_from_query, create_object_from_value
from aaiclick.data.io.from_arrow import to_python
from aaiclick.errors import SecretError
from aaiclick.orchestration.retry_policy import PermanentError

if TYPE_CHECKING:
    import pyarrow as pa

    from aaiclick.catalog.execution.external_postgres import Connection

BATCH_ROWS = 10_000
STAGING = "aaiclick_rows"


async def run_postgres_read(run: OperatorRun) -> Mapping[str, Any]:
    """Read all rows, or those at and after the stored cursor, which advances with the completion of the task.

    Rows are read in the order of the cursor in one snapshot, in constant memory.
    """
    settings = cast("PostgresReadConfig", run.settings)
    _refuse_bound_secrets(run)
    (output,) = run.definition.outputs
    async with (
        connect_external(cast("str", settings.url)) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        reader = await _open_reader(connection, settings, await run.state())
        required = {*run.definition.spec.unique_key, run.definition.outputs[output][0].partition_by}
        if settings.cursor is not None and not await reader.has_rows():
            print("No row has changed.")  # noqa: T201  (into the task's log)
            return {}
        value = await create_object_from_value(reader.read_batches(), schema=reader.build_schema(required))
    print(f"{reader.count:,} rows read from {reader.relation:.200}.")  # noqa: T201
    if reader.position is not None:
        run.remember({"cursor": reader.position})
    return {output: value}


@dataclass
class _Reader:
    """Reads one relation; `position` is the cursor of the last row as text."""

    connection: Connection
    columns: Sequence[ExternalColumn]
    relation: str
    text: str
    parameters: Sequence[object] = ()
    has_cursor: bool = False
    position: str | None = None
    count: int = field(default=0)

    async def has_rows(self) -> bool:
        return bool(await self.connection.fetch(f"{self.text} LIMIT 1", *self.parameters))

    async def read_batches(self) -> AsyncIterator[dict[str, list[Any]]]:
        """Yield columns of rows; without rows, empty columns."""
        cursor = await self.connection.cursor(self.text, *self.parameters)
        while records := await cursor.fetch(BATCH_ROWS):
            self.count += len(records)
            if self.has_cursor:
                self.position = records[-1][len(self.columns)]
            yield to_columns(records, self.columns)
        if not self.count:
            yield to_columns((), self.columns)

    def build_schema(self, required: set[str | None]) -> dict[str, str]:
        """ClickHouse types of the columns; keys and partitions are not NULL."""
        return {
            column.name: f"Nullable({column.clickhouse_type})"
            if column.nullable and column.name not in required
            else column.clickhouse_type
            for column in self.columns
        }


async def _open_reader(
    connection: Connection, settings: PostgresReadConfig, state: Mapping[str, Any] | None
) -> _Reader:
    relation = quote_table(settings.table) if settings.table is not None else f"(\n{settings.query}\n)"
    existing = await describe_relation(connection, relation, settings.table)
    shown = settings.table or "The query"
    columns = select_columns(existing, settings.columns, shown)
    expressions = [column.expression for column in columns]
    text = f"SELECT {', '.join(expressions)} FROM {relation} AS source"  # noqa: S608
    if settings.cursor is None:
        return _Reader(connection, columns, shown, text)
    (cursor,) = select_columns(existing, [settings.cursor], shown)
    if not (cursor.is_time or cursor.is_number):
        raise PermanentError(
            f"The cursor {cursor.name!r} is of type {cursor.type_name}.",
            remedy="Use a column of times or numbers that grows with every change.",
        )
    name = f"source.{quote(cursor.name)}"
    text = f"SELECT {', '.join([*expressions, f'{name}::text'])} FROM {relation} AS source WHERE {name} IS NOT NULL"  # noqa: S608
    parameters: list[object] = []
    if state is not None:
        bound = f"$1::text::{cursor.type_name}"
        distance = "make_interval(secs => $2::float8)" if cursor.is_time else "$2::float8::numeric"
        text += f" AND {name} >= {bound} - {distance}"
        parameters = [state["cursor"], float(settings.lookback)]
    return _Reader(connection, columns, shown, f"{text} ORDER BY {name}", parameters, has_cursor=True)


async def run_postgres_write(run: OperatorRun) -> Mapping[str, Any]:
    """Write the rows of the input, or of one partition of it, in one transaction. It may run twice."""
    settings = cast("PostgresWriteConfig", run.settings)
    _refuse_bound_secrets(run)
    if len(run.definition.inputs) != 1:
        raise PermanentError(
            f"The definition {run.definition.name!r} must have one input.", remedy="Join them in a definition before."
        )
    if run.partition and settings.mode == "replace":
        raise PermanentError(
            "mode: replace writes all rows, but the definition has a task per partition.",
            remedy="Use mode: upsert, or execution_strategy: PerUpdate.",
        )
    (name,) = run.definition.inputs
    rows = await create_object_from_query(run.table(name).select())
    columns = tuple(rows.relation.schema.items())
    target = quote_table(settings.table)
    count = 0
    async with connect_external(cast("str", settings.url)) as connection, connection.transaction():
        existing = await describe_relation(connection, target, settings.table)
        names = [column.name for column in select_columns(existing, [name for name, _ in columns], settings.table)]
        await connection.execute(
            f"CREATE TEMPORARY TABLE {STAGING} ON COMMIT DROP AS SELECT {', '.join(map(quote, names))} "  # noqa: S608
            f"FROM {target} WITH NO DATA"
        )
        async for batch in rows.iter_batches():
            await connection.copy_records_to_table(STAGING, records=_to_records(batch, columns), columns=names)
            count += batch.num_rows
        if settings.mode == "replace":
            await connection.execute(f"DELETE FROM {target}")  # noqa: S608
        await connection.execute(_build_insert(settings, target, names))
    print(f"{count:,} rows written to {settings.table}.")  # noqa: T201  (into the task's log)
    return {}


def _to_records(batch: pa.RecordBatch, columns: tuple[tuple[str, Any], ...]) -> list[tuple[Any, ...]]:
    import pyarrow as pa

    values = to_python(pa.Table.from_batches([batch]), columns, "table")
    return list(zip(*values.values(), strict=True))


def _build_insert(settings: PostgresWriteConfig, target: str, names: Sequence[str]) -> str:
    listed = ", ".join(map(quote, names))
    text = f"INSERT INTO {target} ({listed}) SELECT {listed} FROM {STAGING}"  # noqa: S608
    if settings.mode == "replace":
        return text
    changes = [f"{quote(name)} = EXCLUDED.{quote(name)}" for name in names if name not in settings.key]
    action = f"DO UPDATE SET {', '.join(changes)}" if changes else "DO NOTHING"
    return f"{text} ON CONFLICT ({', '.join(map(quote, settings.key))}) {action}"


def _refuse_bound_secrets(run: OperatorRun) -> None:
    if any(secret.host is not None for secret in run.secrets):
        raise SecretError(
            "A secret that is bound to a host is only sent by http_fetch.",
            remedy="Have an admin set the secret of the database without --host.",
        )
