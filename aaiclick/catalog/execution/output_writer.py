"""Writes the rows of an output: staging, data tests, publication, and the update that the completion records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from aaiclick.catalog.dags.model import REJECTED_SUFFIX, Output
from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.execution import dataset_tables, parquet_storage
from aaiclick.catalog.execution.data_test_gate import DataTestGate
from aaiclick.catalog.execution.definition_context import DatasetLocation, DefinitionContext, load_definition_of_task
from aaiclick.catalog.execution.operator_run import OutputRows
from aaiclick.catalog.execution.parquet_storage import is_own_prefix
from aaiclick.catalog.execution.publish import publish_rows, register_file
from aaiclick.data.compile.data_test_queries import DataTestResult
from aaiclick.data.context import get_data_context
from aaiclick.data.errors import DataTestError
from aaiclick.data.types import is_type, quote_name
from aaiclick.orchestration.gateway import AttemptGateway
from aaiclick.store.catalog.definition_runs import Effects, PartitionUpdate, PublishOutcome, Update

SHOWN_PARTITIONS = 1_000
"""Changed partitions of an output that its task shows."""

MAX_TESTED_PUBLISHES = 100
"""Times that the data tests of an update run again because of concurrent updates of the same dataset."""

COUNTED_ROWS = 5_000_000
"""Appended tables with more rows are counted on demand."""


class _StaleTestsError(Exception):
    """Rows were published after the data tests have read the dataset."""


@dataclass(frozen=True)
class _Written:
    """An update that is written: its output and place, and a SELECT of the rows that it may replace."""

    name: str
    location: DatasetLocation
    existing_select: str
    ticket: int
    slice_key: str
    inputs_hash: str | None


class OutputWriter:
    """Writes the outputs of one task of a definition."""

    def __init__(self, definition: DefinitionContext, gateway: AttemptGateway, effects: Effects) -> None:
        self.definition = definition
        self.gateway = gateway
        self.effects = effects
        self.updates: dict[str, Update] = {}
        self._changed_partitions: dict[str, set[str]] = {}
        self._file_count = 0

    def record_update(self, name: str, update: Update | None) -> None:
        """Add an update to those that the completion records."""
        if update is not None:
            self.updates[name] = _merge_updates(self.updates.get(name), update)

    async def write_rows(
        self, name: str, rows: OutputRows, ticket: int, key: str, inputs_hash: str | None
    ) -> Update | None:
        """Publish rows; return the update to record, None if newer rows are there."""
        output, location = self.definition.outputs[name]
        context = get_data_context()
        select = await _cast_to_declared(context, rows.select, output)
        layout = build_layout(await dataset_tables.describe_select(context, select), output, self.definition)
        slice_key = key if layout.mode == "slice" else ""
        existing = await self._find_existing_rows(location, layout, slice_key)
        async with dataset_tables.stage_rows(context, select, layout, existing[0], ticket, slice_key) as staging:
            written = _Written(name, location, existing[1], ticket, slice_key, inputs_hash)
            if output.tests:
                update = await self._publish_tested(written, staging, existing[0])
            else:
                update = await self._publish_staged(written, staging)
        if update is not None and (location.layout is None or location.layout.columns != staging.layout.columns):
            self._record_lineage(location, rows)
        return update

    async def _publish_staged(
        self, written: _Written, staging: dataset_tables.StagedRows, publishes: int | None = None
    ) -> Update | None:
        """Publish staged rows; return the update to record, None if newer rows are there. Raises _StaleTestsError."""
        location, ticket, slice_key = written.location, written.ticket, written.slice_key
        replaced = await dataset_tables.find_replaced_partitions(get_data_context(), written.existing_select, staging)
        if is_own_prefix(location.table):
            staging = await self._write_file(location, staging, ticket, slice_key)
        outcome = await publish_rows(self.gateway, location, staging, ticket, slice_key, publishes)
        if outcome is PublishOutcome.STALE:
            raise _StaleTestsError
        if outcome is PublishOutcome.SUPERSEDED:
            self.effects.outputs[written.name] = {"superseded": True}
            return None
        return await self.describe_update(
            written.name, location, staging, ticket, slice_key, written.inputs_hash, replaced
        )

    async def _publish_tested(
        self, written: _Written, staging: dataset_tables.StagedRows, existing_columns: dataset_tables.Columns
    ) -> Update | None:
        """Test staged rows and publish those that pass; raises DataTestError if they fail a blocking test."""
        name = written.name
        for _ in range(MAX_TESTED_PUBLISHES):
            rejected_columns, rejected_select = await self._find_rejected_rows(name, staging.layout, written.slice_key)
            gate = DataTestGate(
                self.definition, name, written.slice_key, written.ticket, existing_columns, rejected_columns
            )
            try:
                async with gate.run(staging) as gated:
                    update = await self._publish_staged(written, gated.passed, gated.publishes)
                    if gated.rejected is not None:
                        rejected = replace(
                            written,
                            name=name + REJECTED_SUFFIX,
                            location=self.definition.rejected[name][1],
                            existing_select=rejected_select,
                        )
                        self.record_update(rejected.name, await self._publish_staged(rejected, gated.rejected))
                    self.effects.tests += [asdict(result) for result in gated.results]
                    return update
            except DataTestError as error:
                error.results = (*(DataTestResult(**result) for result in self.effects.tests), *error.results)
                raise
            except _StaleTestsError:  # another task has published: its rows are among the remaining ones now
                self.definition = await load_definition_of_task(self.gateway, self.definition.id)
                location = self.definition.outputs[name][1]
                existing_columns, select = await self._find_existing_rows(location, staging.layout, written.slice_key)
                written = replace(written, location=location, existing_select=select)
        raise DatasetError(f"The dataset {name!r} was updated {MAX_TESTED_PUBLISHES} times while its rows were tested.")

    async def _find_rejected_rows(
        self, name: str, layout: dataset_tables.DatasetLayout, slice_key: str
    ) -> tuple[dataset_tables.Columns, str]:
        if name not in self.definition.rejected:
            return (), ""
        columns, select = await self._find_existing_rows(self.definition.rejected[name][1], layout, slice_key)
        return columns, "" if layout.mode == "append" else select  # a rejected row replaces only its own copy

    async def _find_existing_rows(
        self, location: DatasetLocation, layout: dataset_tables.DatasetLayout, slice_key: str
    ) -> tuple[dataset_tables.Columns, str]:
        """Return the columns of the rows that an update joins, and a SELECT of those it may replace ('' if none)."""
        if layout.mode == "replace":
            return (), ""
        if not is_own_prefix(location.table):
            columns = await dataset_tables.list_columns(get_data_context(), location.table)
            if not columns or layout.mode == "append":
                return columns, layout.select(location.table) if columns else ""
            return columns, dataset_tables.slice_select(layout, location.table, slice_key)
        if location.layout is None:
            return (), ""
        files = [file for file in location.files if layout.mode == "append" or file.slice == slice_key]
        return location.layout.columns, location.layout.select(location.table, files=files)

    async def _write_file(
        self, location: DatasetLocation, staging: dataset_tables.StagedRows, ticket: int, slice_key: str
    ) -> dataset_tables.StagedRows:
        """Write the staged rows to a new file; compact all files into it when there are many."""
        if not staging.rows:
            return staging
        context, layout, merged = get_data_context(), staging.layout, ()
        if layout.mode == "append" and len(location.files) >= parquet_storage.MAX_FILES:
            merged = tuple(existing.name for existing in location.files)
            await dataset_tables.insert_file_rows(context, staging, location.table, location.files)
        self._file_count += 1  # rows that are tested again are written again
        lease = self.gateway.lease
        name = f"{ticket}-{lease.task_id}-{lease.attempt}-{self._file_count}.parquet"
        select = dataset_tables.stored_select(staging)
        await register_file(self.gateway, location, name)
        await parquet_storage.write_file(context, location.table, name, select, layout.stored_columns)
        count = staging.rows if not merged else await dataset_tables.count_rows(context, select)
        return replace(staging, file=parquet_storage.DataFile(name, slice_key, count), merged=merged)

    async def describe_update(
        self,
        name: str,
        location: DatasetLocation,
        staging: dataset_tables.StagedRows,
        ticket: int,
        key: str,
        inputs_hash: str | None,
        replaced: set[str],
    ) -> Update:
        layout = staging.layout
        recorded = await self.gateway.list_partitions(location.generation)
        partitions: list[PartitionUpdate]
        rows: int | None = None
        if layout.mode == "append":
            changed = sorted(replaced | set(staging.partitions)) if layout.partition_by else [""]
            partitions = [PartitionUpdate("", None, None, inputs_hash)]
            partitions += [PartitionUpdate(changed_key, None) for changed_key in changed if changed_key]
            if not staging.rows:
                changed = None
            rows = await self._appended_rows(location, layout)
        elif layout.mode == "slice":
            digest = hashlib.sha256(json.dumps(staging.partitions, sort_keys=True).encode()).hexdigest()
            partitions = [PartitionUpdate(key, staging.rows, digest, inputs_hash)]
            same = key in recorded and recorded[key].digest == digest
            changed = [] if same else sorted(replaced | set(staging.partitions)) if layout.partition_by else [key]
        else:
            digest = hashlib.sha256(json.dumps(staging.partitions, sort_keys=True).encode()).hexdigest()
            partitions = [PartitionUpdate("", staging.rows, digest, inputs_hash)]
            partitions += [
                PartitionUpdate(partition, *stats) for partition, stats in staging.partitions.items() if partition
            ]
            before = {partition: row.digest for partition, row in recorded.items()}
            after = {partition.key: partition.digest for partition in partitions}
            changed = sorted(
                partition for partition in {*before, *after} if before.get(partition) != after.get(partition)
            )
            changed = [partition for partition in changed if partition or layout.partition_by is None]
            rows = staging.rows
        update = Update(
            str(location.dataset), str(location.generation), ticket, layout.to_json(), layout.schema_hash,
            tuple(partitions), rows, layout.mode == "replace", None if changed is None else tuple(changed),
        )  # fmt: skip
        self._summarize_output(name, location, update, staging.rows)
        return update

    def _summarize_output(self, name: str, location: DatasetLocation, update: Update, rows: int) -> None:
        """Add an update to the summary of an output, which the task shows as its result."""
        summary = self.effects.outputs.setdefault(name, {})
        changed = self._changed_partitions.setdefault(name, set())
        changed.update(key for key in update.changed or () if key)
        summary["rows"] = summary.get("rows", 0) + rows
        summary |= {"ticket": str(update.ticket), "generation": update.generation, "location": location.table}
        if changed:
            summary |= {"partitions": sorted(changed)[:SHOWN_PARTITIONS], "partition_count": len(changed)}

    async def _appended_rows(self, location: DatasetLocation, layout: dataset_tables.DatasetLayout) -> int | None:
        context = get_data_context()
        if is_own_prefix(location.table):
            return None  # counted on demand
        result = await context.client.read_text(
            "SELECT sum(rows) FROM system.parts WHERE database = currentDatabase() AND table = {t:String} AND active",
            {"t": location.table},
            query_id=context.query_id(),
        )
        stored_rows = int(result.column(0)[0].as_py() or 0)
        return (
            await dataset_tables.count_rows(context, layout.select(location.table))
            if stored_rows <= COUNTED_ROWS
            else None
        )

    def _record_lineage(self, location: DatasetLocation, rows: OutputRows) -> None:
        """Record column lineage that was derived from SQL; that declared in the file is recorded by the deploy."""
        if rows.lineage is None:
            return
        self.effects.lineage[str(location.generation)] = [
            (column, str(self.definition.inputs[ref.dataset].dataset), ref.column)
            for column, refs in rows.lineage.columns.items()
            for ref in sorted(refs)
            if ref.dataset in self.definition.inputs
        ]


def _merge_updates(before: Update | None, after: Update) -> Update:
    """Merge the updates of several slices of one task."""
    if before is None:
        return after
    partitions_by_key = {partition.key: partition for partition in (*before.partitions, *after.partitions)}
    changed = None if after.changed is None else tuple(sorted({*(before.changed or ()), *after.changed}))
    return replace(
        after, partitions=tuple(partitions_by_key.values()), changed=before.changed if changed is None else changed
    )


async def _cast_to_declared(context: Any, select: str, output: Output) -> str:
    """Return the SELECT cast to the declared columns and types."""
    if not output.columns:
        return select
    column_names = {name for name, _ in await dataset_tables.describe_select(context, select)}
    missing = sorted(set(output.columns) - column_names)
    if missing:
        raise DatasetError(
            f"The output {output.name!r} has no column {missing[0]!r}, which its file declares.",
            remedy="Return it, or remove it from columns.",
        )
    wrong = next((type_name for type_name in output.columns.values() if not is_type(type_name)), None)
    if wrong is not None:  # it becomes part of a query
        raise DatasetError(f"{wrong!r:.60} is not a type.", remedy="Deploy the DAG with a ClickHouse type.")
    columns = ", ".join(
        f"CAST({quote_name(name)} AS {type_name}) AS {quote_name(name)}" for name, type_name in output.columns.items()
    )
    return f"SELECT {columns} FROM (\n{select}\n)"  # noqa: S608


def build_layout(
    columns: tuple[tuple[str, str], ...], output: Output, definition: DefinitionContext
) -> dataset_tables.DatasetLayout:
    names = {name for name, _ in columns}
    needed: Mapping[str, Sequence[str]] = {
        "unique_key": definition.spec.unique_key if definition.mode == "append" else (),
        "partition_by": [output.partition_by] if output.partition_by else (),
    }
    for key, required_columns in needed.items():
        for column in required_columns:
            if column not in names:
                raise DatasetError(
                    f"The output {output.name!r} has no column {column!r}, which {key} names.",
                    remedy=f"It has: {', '.join(sorted(names))}.",
                )
    hidden = next((name for name in names if name.startswith(dataset_tables.RESERVED)), None)
    if hidden is not None:
        raise DatasetError(
            f"The column {hidden!r} of the output {output.name!r} has a reserved name.",
            remedy=f"Rename it: names that begin with {dataset_tables.RESERVED} are reserved.",
        )
    return dataset_tables.DatasetLayout(
        columns, definition.mode, tuple(definition.spec.unique_key), output.partition_by
    )
