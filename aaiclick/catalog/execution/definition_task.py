"""The task of a definition: load its context, run the operator, publish its rows and record the effects.

It may run any number of times and be killed at any point. Rows are published before the task completes; events,
operator states and dataset metadata are written by the completion itself. A run that dies in between is repeated: it
reads the same inputs or newer ones, and replaces the published rows.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ValidationError

from aaiclick.catalog.dags.model import Output
from aaiclick.catalog.errors import DatasetError, OperatorError
from aaiclick.catalog.execution import external_parquet, parquet_storage, table_storage
from aaiclick.catalog.execution.definition import DatasetLocation, DefinitionContext, load_definition_of_task
from aaiclick.catalog.execution.memoize import compute_inputs_hash, find_reusable_tasks
from aaiclick.catalog.execution.operator_functions import RUNNERS, Runner
from aaiclick.catalog.execution.operator_run import InputNotReady, OperatorRun, OutputRows
from aaiclick.catalog.execution.parquet_storage import is_external, is_file_based, is_own_prefix
from aaiclick.catalog.execution.publish import list_locations, publish_rows, register_file
from aaiclick.catalog.execution.secrets import fill_secrets
from aaiclick.catalog.operators.config import default_registry
from aaiclick.catalog.operators.registry import OperatorDefinition
from aaiclick.data.context import get_data_context
from aaiclick.data.errors import ObjectNotFoundError, QueryError
from aaiclick.data.types import is_type, quote_name
from aaiclick.orchestration.retry_policy import PermanentError
from aaiclick.orchestration.task_context import JsonResult, TaskScope, current_scope
from aaiclick.store.catalog.runs import Effects, PartitionUpdate, Update

SHOWN_PARTITIONS = 1_000
"""Changed partitions of an output that its task shows."""

COUNTED_ROWS = 5_000_000
"""Appended tables with more rows are counted on demand."""


async def run_definition(definition: str, event: dict[str, Any]) -> JsonResult:
    """Entry point of every task of a DAG."""
    scope = current_scope()
    assert scope is not None  # noqa: S101
    task = _DefinitionTask(await load_definition_of_task(scope.gateway, UUID(definition)), event, scope)
    try:
        await task.run()
    except ObjectNotFoundError as error:
        raise task.missing_table_error(error) or error from None
    except QueryError as error:
        raise await task.changed_columns_error(error) or error from None
    scope.effects = task.effects.to_json()
    return JsonResult(task.effects.outputs)


class _DefinitionTask:
    def __init__(self, definition: DefinitionContext, event: dict[str, Any], scope: TaskScope) -> None:
        self.definition = definition
        self.event = event
        self.scope = scope
        self.gateway = scope.gateway
        self.effects = Effects(definition=str(definition.id), build=event.get("build"))
        self.states: dict[str, dict[str, Any]] = {}
        self.updates: dict[str, Update] = {}
        self.changed_partitions: dict[str, set[str]] = {}
        self.emitting = asyncio.Lock()
        self.has_emitted = False

    async def run(self) -> None:
        operator = default_registry().find(self.definition.spec.operator)
        runner: Runner | None = operator.run or RUNNERS.get(operator.name)
        if runner is None:
            raise OperatorError(
                f"The operator {operator.name!r} has no run function.", remedy="Add one to its OperatorDefinition."
            )
        config, secrets = await fill_secrets(self.definition.spec.config, self.definition.spec.secrets, self.scope)
        settings = _validate_settings(operator, config)
        driver, keys = await self._choose_slices()
        for key in keys:
            run = OperatorRun(self.definition, settings, self.event, self.scope, key, driver, self.states, secrets)
            try:
                await self._run_slice(run, runner)
            except InputNotReady as reason:
                self.effects.outputs["waits"] = str(reason)
        self.effects.updates = list(self.updates.values())
        self.effects.states += [(str(self.definition.memory), key, state) for key, state in self.states.items()]
        self._record_inputs(keys if driver is not None else [""], driver)

    def missing_table_error(self, error: ObjectNotFoundError) -> PermanentError | None:
        """Return a permanent error if the table of a generation is missing: retrying cannot help."""
        missing = next((location for location in self._list_locations() if location.table in error.what), None)
        if missing is None:
            return None
        return PermanentError(
            f"The rows of {missing.name!r} are missing in ClickHouse. {error.what}",
            remedy="Restore the table, or rebuild it: aaiclick datasets rematerialize.",
        )

    async def changed_columns_error(self, error: QueryError) -> DatasetError | None:
        """Return a retryable error if an input's columns changed while it was read.

        Rows are published before their task completes, and the new columns are recorded only then.
        """
        for location in self.definition.inputs.values() if error.permanent else ():
            if location.layout is None or is_file_based(location.table):
                continue
            if await table_storage.list_columns(get_data_context(), location.table) != location.layout.columns:
                return DatasetError(
                    f"The columns of {location.name!r} were changing while they were read. {error.what}"
                )
        return None

    async def _run_slice(self, run: OperatorRun, runner: Runner) -> None:
        ticket = await self.gateway.take_ticket()
        if any(is_file_based(location.table) for location in self._list_locations()):
            # The list of files is read after the ticket is taken, so that a higher ticket means a later read.
            run.definition = self.definition = await load_definition_of_task(self.gateway, self.definition.id)
        inputs_hash = await compute_inputs_hash(self.gateway, self.definition, run.driver, run.partition)
        if inputs_hash is not None and await self._reuse_outputs(run.partition, inputs_hash):
            return
        if self.definition.spec.activation == "source":
            self.scope.emit = partial(self._emit_rows, run)
        produced = await runner(run)
        self.scope.emit = None
        if self.has_emitted:
            ticket = await self.gateway.take_ticket()  # returned rows are newer than emitted ones
        attached = [name for name, (_, location) in self.definition.outputs.items() if is_external(location.table)]
        for name, value in (dict.fromkeys(attached) | dict(produced)).items():
            self._require_output(name)
            update = await self._publish_output(run, name, value, ticket, inputs_hash)
            if update is not None:
                self.updates[name] = _merge_updates(self.updates.get(name), update)

    async def _publish_output(
        self, run: OperatorRun, name: str, value: object, ticket: int, inputs_hash: str | None
    ) -> Update | None:
        """Publish the operator's value for an output; return the update to record, None if nothing is new."""
        if is_external(self.definition.outputs[name][1].table):
            return await self._attach_files(name, value, ticket, inputs_hash)
        rows = await run.rows(value) or self._make_empty_rows(name)
        return None if rows is None else await self._write_rows(name, rows, ticket, run.partition, inputs_hash)

    def _require_output(self, name: str) -> None:
        if name not in self.definition.outputs:
            raise OperatorError(
                f"The definition {self.definition.name!r} has no output {name!r:.60}.", remedy="Add it to outputs."
            )

    async def _emit_rows(self, run: OperatorRun, value: object, cursor: str, output: str | None) -> None:
        """Publish rows and emit their event while the operator runs; one call at a time."""
        async with self.emitting:
            if output is None and len(self.definition.outputs) != 1:
                raise OperatorError(
                    f"The definition {self.definition.name!r} has {len(self.definition.outputs)} outputs.",
                    remedy="Name one: output='…'.",
                )
            name = output or next(iter(self.definition.outputs))
            self._require_output(name)
            ticket = await self.gateway.take_ticket()
            # Columns and files after the previous update:
            self.definition = await load_definition_of_task(self.gateway, self.definition.id)
            update = await self._publish_output(run, name, value, ticket, None)
            if update is None:
                return
            lineage, self.effects.lineage = self.effects.lineage, {}
            emitted = Effects(
                definition=str(self.definition.id), build=self.event.get("build"), updates=[update], lineage=lineage
            )  # fmt: skip
            self.has_emitted = True
            await self.gateway.emit_updates(emitted.to_json(), cursor)
            cursors = self.effects.outputs[name].setdefault("cursors", {"count": 0})
            cursors |= {"count": cursors["count"] + 1, "last": cursor}

    def _list_locations(self) -> list[DatasetLocation]:
        return [*self.definition.inputs.values(), *(location for _, location in self.definition.outputs.values())]

    # --- slices -------------------------------------------------------------------------------------------------------

    async def _choose_slices(self) -> tuple[str | None, Sequence[str]]:
        """Return the input that is processed by partition, and its partitions; '' is the whole input."""
        if self.definition.spec.execution_strategy != "PerPartition":
            return None, [""]
        partitioned = [
            location for location in self.definition.inputs.values() if location.layout and location.layout.partition_by
        ]
        trigger = self.definition.input_of(str(self.event.get("dataset")))
        driver = next(
            (location for location in partitioned if location is trigger), partitioned[0] if partitioned else None
        )
        if driver is None:
            return None, [""]
        partition = self.definition.slice_of(self.event)
        if partition:
            return driver.name, [partition]
        return driver.name, sorted(await self._list_partitions(driver))

    async def _list_partitions(self, driver: DatasetLocation) -> set[str]:
        """Return every partition of the input and of the outputs."""
        assert driver.layout is not None  # noqa: S101
        context = get_data_context()
        assert driver.layout.partition_by is not None  # noqa: S101
        select = driver.physical().select()
        keys = await table_storage.list_partitions(
            context.client, driver.layout.partition_by, select, context.query_id()
        )
        if self.definition.mode == "slice":
            for _, location in self.definition.outputs.values():
                keys |= set(await self.gateway.list_partitions(location.generation))
        return keys

    # --- reuse --------------------------------------------------------------------------------------------------------

    async def _reuse_outputs(self, key: str, inputs_hash: str) -> bool:
        """Return whether all outputs were already computed from the same inputs; log it in that case."""
        task_ids = (
            await find_reusable_tasks(self.gateway, self.definition, key, inputs_hash)
            if self.definition.spec.memoize
            else None
        )
        if task_ids is None:
            return False
        tasks = [str(task_id) for task_id in sorted(task_ids)]
        reused = self.effects.outputs.setdefault("reused", [])
        reused.append({"partition": key, "made_by": tasks})
        what = f"partition {key!r:.80}" if key else "the output"
        source = f"task {', '.join(tasks)}" if tasks else "a deleted task"
        print(f"Skipped: {what} was already computed from the same inputs by {source}.")  # noqa: T201  (into the task's log)
        return True

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _make_empty_rows(self, name: str) -> OutputRows | None:
        """Return the rows for an operator that returned nothing: no change for append, no rows for replace."""
        _, location = self.definition.outputs[name]
        if self.definition.mode == "append" or self.definition.spec.activation == "source" or location.layout is None:
            return None
        return OutputRows(f"SELECT * FROM ({location.physical().select()}) WHERE false")  # noqa: S608

    async def _write_rows(
        self, name: str, rows: OutputRows, ticket: int, key: str, inputs_hash: str | None
    ) -> Update | None:
        """Publish rows; return the update to record, None if newer rows are there."""
        output, location = self.definition.outputs[name]
        context = get_data_context()
        select = await _cast_to_declared(context, rows.select, output)
        layout = _build_layout(await table_storage.describe_select(context, select), output, self.definition)
        slice_key = key if layout.mode == "slice" else ""
        existing_columns, existing_select = await self._find_existing_rows(location, layout, slice_key)
        async with table_storage.stage_rows(context, select, layout, existing_columns, ticket, slice_key) as staging:
            replaced = await table_storage.find_replaced_partitions(context, existing_select, staging)
            if is_own_prefix(location.table):
                staging = await self._write_file(location, staging, ticket, slice_key)
            if not await publish_rows(self.gateway, location, staging, ticket, slice_key):
                self.effects.outputs[name] = {"superseded": True}
                return None
            update = await self._describe_update(name, location, staging, ticket, slice_key, inputs_hash, replaced)
        if location.layout is None or location.layout.columns != staging.layout.columns:
            self._record_lineage(location, rows)
        return update

    async def _attach_files(self, name: str, value: object, ticket: int, inputs_hash: str | None) -> Update | None:
        """Record the files that another program or the definition's function has written."""
        if value is not None:
            raise OperatorError(
                f"The files of the output {name!r} are written by the definition's function, which returned rows.",
                remedy="Return nothing for it, or remove glob from its storage.",
            )
        output, location = self.definition.outputs[name]
        context, locations = get_data_context(), await list_locations(self.gateway, location)
        layout = _build_layout(await external_parquet.describe_files(context, locations), output, self.definition)
        staging = await external_parquet.scan_files(context, layout, locations)
        if not await publish_rows(self.gateway, location, staging, ticket, ""):
            self.effects.outputs[name] = {"superseded": True}
            return None
        update = await self._describe_update(name, location, staging, ticket, "", inputs_hash, set())
        return update if update.changed else replace(update, changed=None)  # None: unchanged files

    async def _find_existing_rows(
        self, location: DatasetLocation, layout: table_storage.DatasetLayout, slice_key: str
    ) -> tuple[table_storage.Columns, str]:
        """Return the columns of the rows that an update joins, and a SELECT of those it may replace ('' if none)."""
        if layout.mode == "replace":
            return (), ""
        if not is_own_prefix(location.table):
            columns = await table_storage.list_columns(get_data_context(), location.table)
            if not columns or layout.mode == "append":
                return columns, layout.select(location.table) if columns else ""
            return columns, table_storage.slice_select(layout, location.table, slice_key)
        if location.layout is None:
            return (), ""
        files = [file for file in location.files if layout.mode == "append" or file.slice == slice_key]
        return location.layout.columns, location.layout.select(location.table, files=files)

    async def _write_file(
        self, location: DatasetLocation, staging: table_storage.StagedRows, ticket: int, slice_key: str
    ) -> table_storage.StagedRows:
        """Write the staged rows to a new file; compact all files into it when there are many."""
        if not staging.rows:
            return staging
        context, layout, merged = get_data_context(), staging.layout, ()
        if layout.mode == "append" and len(location.files) >= parquet_storage.MAX_FILES:
            merged = tuple(existing.name for existing in location.files)
            await table_storage.insert_file_rows(context, staging, location.table, location.files)
        name = f"{ticket}-{self.scope.lease.task_id}-{self.scope.lease.attempt}.parquet"
        select = table_storage.stored_select(staging)
        await register_file(self.gateway, location, name)
        await parquet_storage.write_file(context, location.table, name, select, layout.stored_columns)
        count = staging.rows if not merged else await table_storage.count_rows(context, select)
        return replace(staging, file=parquet_storage.DataFile(name, slice_key, count), merged=merged)

    async def _describe_update(
        self,
        name: str,
        location: DatasetLocation,
        staging: table_storage.StagedRows,
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
        changed = self.changed_partitions.setdefault(name, set())
        changed.update(key for key in update.changed or () if key)
        summary["rows"] = summary.get("rows", 0) + rows
        summary |= {"ticket": str(update.ticket), "generation": update.generation, "location": location.table}
        if changed:
            summary |= {"partitions": sorted(changed)[:SHOWN_PARTITIONS], "partition_count": len(changed)}

    async def _appended_rows(self, location: DatasetLocation, layout: table_storage.DatasetLayout) -> int | None:
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
            await table_storage.count_rows(context, layout.select(location.table))
            if stored_rows <= COUNTED_ROWS
            else None
        )

    # --- records ------------------------------------------------------------------------------------------------------

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

    def _record_inputs(self, keys: Sequence[str], driver: str | None) -> None:
        for name, location in self.definition.inputs.items():
            if location.updated_at is None:
                continue
            moment = location.updated_at.isoformat()
            self.effects.input_versions[name] = {"generation": str(location.generation), "updated_at": moment}
            read = keys if name == driver else [""]
            self.effects.inputs += [(str(location.dataset), key, moment) for key in read]


def _merge_updates(before: Update | None, after: Update) -> Update:
    """Merge the updates of several slices of one task."""
    if before is None:
        return after
    partitions_by_key = {partition.key: partition for partition in (*before.partitions, *after.partitions)}
    changed = None if after.changed is None else tuple(sorted({*(before.changed or ()), *after.changed}))
    return replace(
        after, partitions=tuple(partitions_by_key.values()), changed=before.changed if changed is None else changed
    )


def _validate_settings(definition: OperatorDefinition, config: Mapping[str, object]) -> BaseModel:
    """Validate the settings with secrets filled in; the DAG was checked before, so an error is due to a secret."""
    try:
        return definition.settings(config)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise OperatorError(
            f"The setting {where} of {definition.name!r} cannot have this value.", remedy="Check the secret in it."
        ) from None


async def _cast_to_declared(context: Any, select: str, output: Output) -> str:
    """Return the SELECT cast to the declared columns and types."""
    if not output.columns:
        return select
    column_names = {name for name, _ in await table_storage.describe_select(context, select)}
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


def _build_layout(
    columns: tuple[tuple[str, str], ...], output: Output, definition: DefinitionContext
) -> table_storage.DatasetLayout:
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
    hidden = next((name for name in names if name.startswith(table_storage.RESERVED)), None)
    if hidden is not None:
        raise DatasetError(
            f"The column {hidden!r} of the output {output.name!r} has a reserved name.",
            remedy=f"Rename it: names that begin with {table_storage.RESERVED} are reserved.",
        )
    return table_storage.DatasetLayout(columns, definition.mode, tuple(definition.spec.unique_key), output.partition_by)
