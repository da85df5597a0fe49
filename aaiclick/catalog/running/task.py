"""The task of a definition: find out what to do, run the operator, put its rows in place, say what is left behind.

It may be run any number of times and be killed anywhere. Rows are put in place before the task completes; its events,
its states and what is known of its outputs are written by the completion itself. A run that dies in between is made
again: it finds the same inputs or newer ones, and replaces what was put in place.
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
from aaiclick.catalog.operators.built_in import default_registry
from aaiclick.catalog.operators.registry import OperatorDefinition
from aaiclick.catalog.running import foreign, parquet, storage
from aaiclick.catalog.running.ledger import Ledger, ledger_of
from aaiclick.catalog.running.parquet import in_files, is_foreign, is_prefix
from aaiclick.catalog.running.reuse import made_by, made_of
from aaiclick.catalog.running.run import NotYet, OperatorRun, Rows
from aaiclick.catalog.running.runners import RUNNERS, Runner
from aaiclick.catalog.running.secrets import fill_secrets
from aaiclick.catalog.running.work import Place, Work
from aaiclick.data.context import get_data_context
from aaiclick.data.errors import ObjectNotFoundError, QueryError
from aaiclick.data.types import is_type, quote_name
from aaiclick.orchestration.retry import PermanentError
from aaiclick.orchestration.scope import Record, TaskScope, current_scope
from aaiclick.store.catalog_runs import Effects, PartitionUpdate, Update

BOOTSTRAP = "aaiclick bootstrap"
"""The state that says that the outputs of this version were emptied."""

COUNTED_ROWS = 5_000_000
"""Rows of a larger table of appended rows are counted when somebody asks."""


async def run_definition(definition: str, event: dict[str, Any]) -> Record:
    """What every task of a DAG runs."""
    scope = current_scope()
    assert scope is not None  # noqa: S101
    ledger = ledger_of(scope)
    task = _Task(await ledger.work(UUID(definition)), event, scope, ledger)
    try:
        await task.run()
    except ObjectNotFoundError as error:
        raise task.lost(error) or error from None
    except QueryError as error:
        raise await task.overtaken(error) or error from None
    scope.effects = task.effects.to_json()
    return Record(task.effects.outputs)


class _Task:
    def __init__(self, work: Work, event: dict[str, Any], scope: TaskScope, ledger: Ledger) -> None:
        self.work = work
        self.event = event
        self.scope = scope
        self.ledger = ledger
        self.effects = Effects(definition=str(work.id), build=event.get("build"))
        self.states: dict[str, dict[str, Any]] = {}
        self.updates: dict[str, Update] = {}
        self.was_reset = False
        self.emitting = asyncio.Lock()
        self.has_emitted = False

    async def run(self) -> None:
        definition = default_registry().find(self.work.spec.operator)
        runner: Runner | None = definition.run or RUNNERS.get(definition.name)
        if runner is None:
            raise OperatorError(
                f"The operator {definition.name!r} cannot be run here.", remedy="Its package offers no run function."
            )
        config, secrets = await fill_secrets(self.work.spec.config, self.work.spec.secrets, self.scope)
        settings = _checked(definition, config)
        await self._reset()
        driver, keys = await self._slices()
        for key in keys:
            run = OperatorRun(
                self.work, settings, self.event, self.scope, self.ledger, key, driver, self.states, secrets
            )
            try:
                await self._run_slice(run, runner)
            except NotYet as reason:
                self.effects.outputs["waits"] = str(reason)
        self.effects.updates = list(self.updates.values())
        self.effects.states += [(str(self.work.memory), key, state) for key, state in self.states.items()]
        self.effects.states += self._reset_states()
        self._note_inputs(keys if driver is not None else [""], driver)

    def lost(self, error: ObjectNotFoundError) -> PermanentError | None:
        """A generation is known by its id: if it is gone, it is gone the next time, too."""
        gone = next((place for place in self._places() if place.table in error.what), None)
        if gone is None:
            return None
        return PermanentError(
            f"The rows of {gone.name!r} are gone from ClickHouse; trying again is no use. {error.what}",
            remedy="Restore the table, or have it made again: aaiclick datasets rematerialize.",
        )

    async def overtaken(self, error: QueryError) -> DatasetError | None:
        """Rows are put in place before the task that made them completes, and only then it is known that they have
        other columns: who reads in between fails, and does not fail the next time.
        """
        for place in self.work.inputs.values() if error.permanent else ():
            if place.layout is None or in_files(place.table):
                continue
            if await storage.existing(get_data_context(), place.table) != place.layout.columns:
                return DatasetError(f"The columns of {place.name!r} were changing while they were read. {error.what}")
        return None

    async def _run_slice(self, run: OperatorRun, runner: Runner) -> None:
        ticket = await self.ledger.take_ticket()
        if any(in_files(place.table) for place in self._places()):
            # Which files there are is read after the ticket is taken: who has the higher one has read later.
            run.work = self.work = await self.ledger.work(self.work.id)
        of_these = await made_of(self.ledger, self.work, run.driver, run.partition)
        if of_these is not None and await self._reuse(run.partition, of_these):
            return
        if self.work.spec.activation == "source":
            self.scope.emit = partial(self._emit, run)
        produced = await runner(run)
        self.scope.emit = None
        if self.has_emitted:
            ticket = await self.ledger.take_ticket()  # what is returned is newer than what was emitted
        attached = [name for name, (_, place) in self.work.outputs.items() if is_foreign(place.table)]
        for name, value in (dict.fromkeys(attached) | dict(produced)).items():
            self._require_output(name)
            update = await self._publish(run, name, value, ticket, of_these)
            if update is not None:
                self.updates[name] = _merged(self.updates.get(name), update)

    async def _publish(
        self, run: OperatorRun, name: str, value: Any, ticket: int, made_of: str | None
    ) -> Update | None:
        """Publish what the operator gave for an output; returns what to record of that, None if nothing is new."""
        if is_foreign(self.work.outputs[name][1].table):
            return await self._attach(name, value, ticket, made_of)
        rows = await run.rows(value) or self._no_rows(name)
        return None if rows is None else await self._update(name, rows, ticket, run.partition, made_of)

    def _require_output(self, name: str) -> None:
        if name not in self.work.outputs:
            raise OperatorError(f"The job {self.work.name!r} has no output {name!r:.60}.", remedy="Add it to outputs.")

    async def _emit(self, run: OperatorRun, value: Any, cursor: str, output: str | None) -> None:
        """Publish rows and emit their event while the operator runs; one at a time."""
        async with self.emitting:
            if output is None and len(self.work.outputs) != 1:
                raise OperatorError(
                    f"The job {self.work.name!r} has {len(self.work.outputs)} outputs.", remedy="Name one: output='…'."
                )
            name = output or next(iter(self.work.outputs))
            self._require_output(name)
            ticket = await self.ledger.take_ticket()
            self.work = await self.ledger.work(self.work.id)  # the columns and files that the last one left
            update = await self._publish(run, name, value, ticket, None)
            if update is None:
                return
            lineage, self.effects.lineage = self.effects.lineage, {}
            emitted = Effects(
                definition=str(self.work.id), build=self.event.get("build"), updates=[update], lineage=lineage,
                states=self._reset_states(),
            )  # fmt: skip
            self.has_emitted = True
            await self.ledger.emit(emitted, cursor)

    def _places(self) -> list[Place]:
        return [*self.work.inputs.values(), *(place for _, place in self.work.outputs.values())]

    # --- what to do ---------------------------------------------------------------------------------------------------

    async def _slices(self) -> tuple[str | None, Sequence[str]]:
        """The input that is taken partition by partition, and which of its partitions; the whole of it is ''."""
        if self.work.spec.execution_strategy != "PerPartition":
            return None, [""]
        partitioned = [each for each in self.work.inputs.values() if each.layout and each.layout.partition_by]
        caused = self.work.input_of(str(self.event.get("dataset")))
        driver = next((each for each in partitioned if each is caused), partitioned[0] if partitioned else None)
        if driver is None:
            return None, [""]
        wanted = self.work.slice_of(self.event)
        if wanted:
            return driver.name, [wanted]
        return driver.name, sorted(await self._all_partitions(driver))

    async def _all_partitions(self, driver: Place) -> set[str]:
        """Every partition that the input has, or that an output still has."""
        assert driver.layout is not None  # noqa: S101
        context = get_data_context()
        assert driver.layout.partition_by is not None  # noqa: S101
        select = driver.physical().select()
        keys = await storage.partitions(context.client, driver.layout.partition_by, select, context.query_id())
        if self.work.mode == "slice":
            for _, place in self.work.outputs.values():
                keys |= set(await self.ledger.partitions(place.generation))
        return keys

    async def _reset(self) -> None:
        """Empty the outputs before the first run of a version, if its file asks for that."""
        bootstrap = self.work.spec.bootstrap
        if bootstrap is None or not bootstrap.reset_outputs:
            return
        done = await self.ledger.state(self.work, self.work.id, BOOTSTRAP)
        if done is None:
            for _, place in self.work.outputs.values():
                if is_foreign(place.table):
                    continue  # its writer empties it
                if not is_prefix(place.table):
                    await storage.empty(get_data_context(), place.table)
                elif place.layout is not None:
                    nothing = storage.Staged("", replace(place.layout, mode="replace"), 0, {})
                    await self.ledger.publish(place, nothing, await self.ledger.take_ticket(), "")
            self.was_reset = True

    def _reset_states(self) -> list[tuple[str, str, dict[str, Any]]]:
        """The state that says that this run has emptied the outputs."""
        reset_by = {"reset_by": str(self.scope.lease.task_id)}
        return [(str(self.work.id), BOOTSTRAP, reset_by)] if self.was_reset else []

    # --- reuse --------------------------------------------------------------------------------------------------------

    async def _reuse(self, key: str, made_of: str) -> bool:
        """Whether all outputs were made of the same; then nothing is done, and the task says so."""
        by = await made_by(self.ledger, self.work, key, made_of) if self.work.spec.memoize else None
        if by is None:
            return False
        tasks = [str(each) for each in sorted(by)]
        reused = self.effects.outputs.setdefault("reused", [])
        reused.append({"partition": key, "made_by": tasks})
        what = f"The partition {key!r:.80} of its outputs" if key else "What it would make"
        print(f"Nothing was done. {what} is there already, made of the same inputs by task {', '.join(tasks)}.")  # noqa: T201  (into the task's log)
        return True

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _no_rows(self, name: str) -> Rows | None:
        """The operator gave nothing. What is appended to stays as it is; what is replaced has no rows from now on."""
        _, place = self.work.outputs[name]
        if self.work.mode == "append" or self.work.spec.activation == "source" or place.layout is None:
            return None
        return Rows(f"SELECT * FROM ({place.physical().select()}) WHERE false")  # noqa: S608

    async def _update(self, name: str, rows: Rows, ticket: int, key: str, made_of: str | None) -> Update | None:
        """Put rows in place; returns what to record of that, None if newer ones are there."""
        output, place = self.work.outputs[name]
        context = get_data_context()
        select = await _promised(context, rows.select, output)
        layout = _layout(await storage.describe(context, select), output, self.work)
        slice_key = key if layout.mode == "slice" else ""
        there, before = await self._there(place, layout, slice_key)
        async with storage.staged(context, select, layout, there, ticket, slice_key) as staging:
            touched = await storage.touched(context, before, staging)
            if is_prefix(place.table):
                staging = await self._written(place, staging, ticket, slice_key)
            if not await self.ledger.publish(place, staging, ticket, slice_key):
                self.effects.outputs[name] = {"superseded": True}
                return None
            update = await self._describe_update(name, place, staging, ticket, slice_key, made_of, touched)
        if place.layout is None or place.layout.columns != staging.layout.columns:
            self._note_lineage(output, place, rows)
        return update

    async def _attach(self, name: str, value: Any, ticket: int, made_of: str | None) -> Update | None:
        """Record the files that another program, or the job's own function, has written."""
        if value is not None:
            raise OperatorError(
                f"The files of the output {name!r} are written by the job itself, and its function returned rows.",
                remedy="Return nothing for it, or leave glob out of its storage.",
            )
        output, place = self.work.outputs[name]
        context, locations = get_data_context(), await self.ledger.locations(place)
        layout = _layout(await foreign.describe(context, locations), output, self.work)
        staging = await foreign.look(context, layout, locations)
        if not await self.ledger.publish(place, staging, ticket, ""):
            self.effects.outputs[name] = {"superseded": True}
            return None
        update = await self._describe_update(name, place, staging, ticket, "", made_of, set())
        return update if update.changed else replace(update, changed=None)  # None: the same files as before

    async def _there(self, place: Place, layout: storage.Layout, slice_key: str) -> tuple[storage.Columns, str]:
        """The columns of the rows that an update joins, and a SELECT of those that it may replace; none: ''."""
        if layout.mode == "replace":
            return (), ""
        if not is_prefix(place.table):
            columns = await storage.existing(get_data_context(), place.table)
            if not columns or layout.mode == "append":
                return columns, layout.select(place.table) if columns else ""
            return columns, storage.slice_select(layout, place.table, slice_key)
        if place.layout is None:
            return (), ""
        files = [each for each in place.files if layout.mode == "append" or each.slice == slice_key]
        return place.layout.columns, place.layout.select(place.table, files=files)

    async def _written(self, place: Place, staging: storage.Staged, ticket: int, slice_key: str) -> storage.Staged:
        """The staged rows in a file of their own; with those of all files, when there are many."""
        if not staging.rows:
            return staging
        context, layout, merged = get_data_context(), staging.layout, ()
        if layout.mode == "append" and len(place.files) >= parquet.MOST_FILES:
            merged = tuple(each.name for each in place.files)
            await storage.join(context, staging, place.table, place.files)
        name = f"{ticket}-{self.scope.lease.task_id}-{self.scope.lease.attempt}.parquet"
        select = storage.stored_select(staging)
        await self.ledger.announce_file(place, name)
        await parquet.write(context, place.table, name, select, layout.stored)
        count = staging.rows if not merged else await storage.count(context, select)
        return replace(staging, file=parquet.File(name, slice_key, count), merged=merged)

    async def _describe_update(
        self,
        name: str,
        place: Place,
        staging: storage.Staged,
        ticket: int,
        key: str,
        made_of: str | None,
        touched: set[str],
    ) -> Update:
        layout = staging.layout
        known = await self.ledger.partitions(place.generation)
        partitions: list[PartitionUpdate]
        rows: int | None = None
        if layout.mode == "append":
            changed = sorted(touched | set(staging.partitions)) if layout.partition_by else [""]
            partitions = [PartitionUpdate("", None, None, made_of)]
            partitions += [PartitionUpdate(each, None) for each in changed if each]
            if not staging.rows:
                changed = None
            rows = await self._appended_rows(place, layout)
        elif layout.mode == "slice":
            digest = hashlib.sha256(json.dumps(staging.partitions, sort_keys=True).encode()).hexdigest()
            partitions = [PartitionUpdate(key, staging.rows, digest, made_of)]
            same = key in known and known[key]["digest"] == digest
            changed = [] if same else sorted(touched | set(staging.partitions)) if layout.partition_by else [key]
        else:
            digest = hashlib.sha256(json.dumps(staging.partitions, sort_keys=True).encode()).hexdigest()
            partitions = [PartitionUpdate("", staging.rows, digest, made_of)]
            partitions += [PartitionUpdate(each, *found) for each, found in staging.partitions.items() if each]
            before = {each: row["digest"] for each, row in known.items()}
            after = {each.key: each.digest for each in partitions}
            changed = sorted(each for each in {*before, *after} if before.get(each) != after.get(each))
            changed = [each for each in changed if each or layout.partition_by is None]
            rows = staging.rows
        update = Update(
            str(place.dataset), str(place.generation), ticket, layout.to_json(), layout.schema_hash, tuple(partitions),
            rows, layout.mode == "replace", None if changed is None else tuple(changed),
        )  # fmt: skip
        said = self.effects.outputs.setdefault(name, {"rows": 0, "ticket": str(ticket)})
        said["rows"] = said.get("rows", 0) + staging.rows
        return update

    async def _appended_rows(self, place: Place, layout: storage.Layout) -> int | None:
        context = get_data_context()
        if is_prefix(place.table):
            return None  # counted when somebody asks
        found = await context.client.read_text(
            "SELECT sum(rows) FROM system.parts WHERE database = currentDatabase() AND table = {t:String} AND active",
            {"t": place.table},
            query_id=context.query_id(),
        )
        stored = int(found.column(0)[0].as_py() or 0)
        return await storage.count(context, layout.select(place.table)) if stored <= COUNTED_ROWS else None

    # --- records ------------------------------------------------------------------------------------------------------

    def _note_lineage(self, output: Output, place: Place, rows: Rows) -> None:
        """Where columns come from: derived from SQL, or as the file says."""
        if rows.lineage is not None:
            edges = [
                (column, ref.dataset, ref.column)
                for column, refs in rows.lineage.columns.items()
                for ref in sorted(refs)
            ]
        else:
            edges = [
                (column, *source.rpartition(".")[::2])
                for column, sources in output.lineage.items()
                for source in sources
            ]
        self.effects.lineage[str(place.dataset)] = [
            (column, str(self.work.inputs[name].dataset), source)
            for column, name, source in edges
            if name in self.work.inputs
        ]

    def _note_inputs(self, keys: Sequence[str], driver: str | None) -> None:
        for name, place in self.work.inputs.items():
            if place.updated_at is None:
                continue
            moment = place.updated_at.isoformat()
            self.effects.input_versions[name] = {"generation": str(place.generation), "updated_at": moment}
            read = keys if name == driver else [""]
            self.effects.inputs += [(str(place.dataset), key, moment) for key in read]


def _merged(before: Update | None, after: Update) -> Update:
    """Updates of several slices in one task, told as one."""
    if before is None:
        return after
    known = {each.key: each for each in (*before.partitions, *after.partitions)}
    changed = None if after.changed is None else tuple(sorted({*(before.changed or ()), *after.changed}))
    return replace(after, partitions=tuple(known.values()), changed=before.changed if changed is None else changed)


def _checked(definition: OperatorDefinition, config: Mapping[str, Any]) -> BaseModel:
    """The settings; they were checked when the DAG was read, so a value that is wrong now is a secret's."""
    try:
        return definition.settings(config)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise OperatorError(
            f"The setting {where} of {definition.name!r} cannot have this value.", remedy="Check the secret in it."
        ) from None


async def _promised(context: Any, select: str, output: Output) -> str:
    """The SELECT with the columns and types that the file promises."""
    if not output.columns:
        return select
    given = {name for name, _ in await storage.describe(context, select)}
    missing = sorted(set(output.columns) - given)
    if missing:
        raise DatasetError(
            f"The output {output.name!r} lacks the column {missing[0]!r}, which its file promises.",
            remedy="Make it, or take it out of columns.",
        )
    wrong = next((kind for kind in output.columns.values() if not is_type(kind)), None)
    if wrong is not None:  # it becomes text of a query
        raise DatasetError(f"{wrong!r:.60} is not a type.", remedy="Deploy the DAG with a ClickHouse type.")
    columns = ", ".join(
        f"CAST({quote_name(name)} AS {kind}) AS {quote_name(name)}" for name, kind in output.columns.items()
    )
    return f"SELECT {columns} FROM (\n{select}\n)"  # noqa: S608


def _layout(columns: tuple[tuple[str, str], ...], output: Output, work: Work) -> storage.Layout:
    names = {name for name, _ in columns}
    needed: Mapping[str, Sequence[str]] = {
        "unique_key": work.spec.unique_key if work.mode == "append" else (),
        "partition_by": [output.partition_by] if output.partition_by else (),
    }
    for key, wanted in needed.items():
        for column in wanted:
            if column not in names:
                raise DatasetError(
                    f"The output {output.name!r} has no column {column!r}, which {key} names.",
                    remedy=f"It has: {', '.join(sorted(names))}.",
                )
    hidden = next((name for name in names if name.startswith(storage.RESERVED)), None)
    if hidden is not None:
        raise DatasetError(
            f"The column {hidden!r} of the output {output.name!r} has a name that is taken.",
            remedy=f"Names that begin with {storage.RESERVED} are ours: give it another.",
        )
    return storage.Layout(columns, work.mode, tuple(work.spec.unique_key), output.partition_by)
