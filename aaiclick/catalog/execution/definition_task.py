"""The task of a definition: load its context, run the operator, publish its rows and record the effects.

It may run any number of times and be killed at any point. Rows are published before the task completes; events,
operator states and dataset metadata are written by the completion itself. A run that dies in between is repeated: it
reads the same inputs or newer ones, and replaces the published rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ValidationError

from aaiclick.catalog.dags.model import REJECTED_SUFFIX
from aaiclick.catalog.errors import DatasetError, OperatorError
from aaiclick.catalog.execution import dataset_tables, parquet_files_operator
from aaiclick.catalog.execution.builtin_operators import RUNNERS, Runner
from aaiclick.catalog.execution.definition_context import DatasetLocation, DefinitionContext, load_definition_of_task
from aaiclick.catalog.execution.memoize import compute_inputs_hash, find_reusable_tasks
from aaiclick.catalog.execution.operator_run import InputNotReady, OperatorRun, OutputRows
from aaiclick.catalog.execution.output_writer import OutputWriter, build_layout
from aaiclick.catalog.execution.parquet_storage import is_external, is_file_based
from aaiclick.catalog.execution.publish import list_locations, publish_rows
from aaiclick.catalog.execution.secret_substitution import fill_secrets
from aaiclick.catalog.operators.config import default_registry
from aaiclick.catalog.operators.registry import OperatorDefinition
from aaiclick.data.context import get_data_context
from aaiclick.data.errors import ObjectNotFoundError, QueryError
from aaiclick.orchestration.retry_policy import PermanentError
from aaiclick.orchestration.task_context import JsonResult, TaskScope, current_scope
from aaiclick.store.catalog.definition_runs import Effects, PublishOutcome, Update


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
        self.event = event
        self.scope = scope
        self.gateway = scope.gateway
        self.effects = Effects(definition=str(definition.id), build=event.get("build"))
        self.states: dict[str, dict[str, Any]] = {}
        self.writer = OutputWriter(definition, scope.gateway, self.effects)
        self.emitting = asyncio.Lock()
        self.has_emitted = False

    @property
    def definition(self) -> DefinitionContext:
        return self.writer.definition

    @definition.setter
    def definition(self, definition: DefinitionContext) -> None:
        self.writer.definition = definition

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
            self.effects.alerts += run.alerts
        self.effects.updates = list(self.writer.updates.values())
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
            if await dataset_tables.list_columns(get_data_context(), location.table) != location.layout.columns:
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
            self.writer.record_update(name, await self._publish_output(run, name, value, ticket, inputs_hash))

    async def _publish_output(
        self, run: OperatorRun, name: str, value: object, ticket: int, inputs_hash: str | None
    ) -> Update | None:
        """Publish the operator's value for an output; return the update to record, None if nothing is new."""
        if is_external(self.definition.outputs[name][1].table):
            return await self._attach_files(name, value, ticket, inputs_hash)
        rows = await run.rows(value) or self._make_empty_rows(name)
        return None if rows is None else await self.writer.write_rows(name, rows, ticket, run.partition, inputs_hash)

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
            rejected = self.writer.updates.pop(name + REJECTED_SUFFIX, None)
            updates = [emitted_update for emitted_update in (update, rejected) if emitted_update is not None]
            if not updates:
                return
            lineage, self.effects.lineage = self.effects.lineage, {}
            tests, self.effects.tests = self.effects.tests, []
            emitted = Effects(
                definition=str(self.definition.id), build=self.event.get("build"), updates=updates, lineage=lineage,
                tests=tests,
            )  # fmt: skip
            self.has_emitted = True
            await self.gateway.emit_updates(emitted.to_json(), cursor)
            cursors = self.effects.outputs[name].setdefault("cursors", {"count": 0})
            cursors |= {"count": cursors["count"] + 1, "last": cursor}

    def _list_locations(self) -> list[DatasetLocation]:
        return [*self.definition.inputs.values(), *self.definition.output_locations]

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
        keys = await dataset_tables.list_partitions(
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

    async def _attach_files(self, name: str, value: object, ticket: int, inputs_hash: str | None) -> Update | None:
        """Record the files that another program or the definition's function has written."""
        if value is not None:
            raise OperatorError(
                f"The files of the output {name!r} are written by the definition's function, which returned rows.",
                remedy="Return nothing for it, or remove glob from its storage.",
            )
        output, location = self.definition.outputs[name]
        context, locations = get_data_context(), await list_locations(self.gateway, location)
        layout = build_layout(await parquet_files_operator.describe_files(context, locations), output, self.definition)
        staging = await parquet_files_operator.scan_files(context, layout, locations)
        if await publish_rows(self.gateway, location, staging, ticket, "") is PublishOutcome.SUPERSEDED:
            self.effects.outputs[name] = {"superseded": True}
            return None
        update = await self.writer.describe_update(name, location, staging, ticket, "", inputs_hash, set())
        return update if update.changed else replace(update, changed=None)  # None: unchanged files

    # --- records ------------------------------------------------------------------------------------------------------

    def _record_inputs(self, keys: Sequence[str], driver: str | None) -> None:
        for name, location in self.definition.inputs.items():
            if location.updated_at is None:
                continue
            moment = location.updated_at.isoformat()
            self.effects.input_versions[name] = {"generation": str(location.generation), "updated_at": moment}
            read = keys if name == driver else [""]
            self.effects.inputs += [(str(location.dataset), key, moment) for key in read]


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
