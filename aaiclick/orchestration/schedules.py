"""Create schedules at run time, and those that modules declare with `@job(schedule=…)`.

A schedule is one row; `aaiclick.orchestration.loops.scheduler` starts its runs.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

from aaiclick import failpoints
from aaiclick.errors import ConflictError, EntrypointError, ScheduleError
from aaiclick.orchestration.api import entrypoint_of
from aaiclick.orchestration.argument_serialisation import serialise_arguments
from aaiclick.orchestration.context import current_or_new_context
from aaiclick.orchestration.decorators import JobFunction
from aaiclick.orchestration.schedule_spec import NominalType, ScheduleKeywords, ScheduleSpec
from aaiclick.orchestration.task_context import refuse_repeated
from aaiclick.orchestration.typed_arguments import to_plain_arguments
from aaiclick.store.clock import read_clock
from aaiclick.store.engine import schedules as store
from aaiclick.store.engine.result_placeholders import temporary_tables_in
from aaiclick.store.engine.schedules import ScheduleFields
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.name_and_key_limits import check_key
from aaiclick.store.task_options import DEFAULT_OPTIONS, TaskOptions

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

NAME_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A named schedule of a job (`entrypoint`) or a queue item (`item_type`)."""

    name: str
    spec: ScheduleSpec
    entrypoint: str | None = None
    job_name: str | None = None
    item_type: str | None = None
    kwargs: Mapping[str, object] | None = None
    options: TaskOptions = DEFAULT_OPTIONS
    nominal_parameter: str | None = None
    nominal_type: NominalType | None = None
    timeout_seconds: float | None = None
    declared_in: str | None = None

    def fields(self) -> ScheduleFields:
        """The columns; raises SubmitError or ScheduleError for arguments and options that cannot be stored."""
        where = f"The schedule {self.name!r:.80}"
        if self.entrypoint is None:
            check_key(f"{where} has a type of items that", self.item_type)
        kwargs, required_tasks = serialise_arguments(self.kwargs or {}, where)
        if required_tasks or temporary_tables_in(json.loads(kwargs)):
            raise ScheduleError(
                f"{where} has a temporary Object or a task as an argument.",
                remedy="Runs are started later: pass plain values, or the name of a named Object.",
            )
        self.options.check(where)
        spec = self.spec
        return ScheduleFields(
            self.entrypoint, self.job_name, self.item_type, kwargs, json.dumps(self.options.to_json()), spec.cron,
            None if spec.every is None else spec.every.total_seconds(), spec.timezone, spec.missed, spec.max_missed,
            "allow" if self.item_type is not None else spec.overlap, self.nominal_parameter, self.nominal_type,
            self.timeout_seconds, self.declared_in,
        )  # fmt: skip


async def schedule(
    target: JobFunction[...],
    *,
    cron: str | None = None,
    every: str | None = None,
    name: str | None = None,
    arguments: Mapping[str, object] | None = None,
    **policies: Unpack[ScheduleKeywords],
) -> str:
    """Run a job at the times of a cron expression or an interval; returns the name of the schedule.

    An existing schedule of the same name is replaced; by default it has the import path of the job.

    ```python
    await schedule(nightly, cron="0 3 * * *", timezone="Europe/Berlin", name="nightly")  # 'nightly'
    ```
    """
    new = make_schedule(target, ScheduleSpec.parse(cron, every, **policies), name=name, arguments=arguments)
    return await _save_own(new)


async def schedule_item(
    item_type: str,
    payload: Mapping[str, object] | None = None,
    *,
    name: str,
    cron: str | None = None,
    every: str | None = None,
    **policies: Unpack[ScheduleKeywords],
) -> str:
    """Put an item into a queue at the times of a cron expression or an interval; returns the name of the schedule.

    An existing schedule of the same name is replaced. Items do not wait for each other: give their handler a
    concurrency key if they must.

    ```python
    await schedule_item("email:send", {"to": "ada@example.org"}, name="reminder", every="1d")
    ```
    """
    spec = ScheduleSpec.parse(cron, every, **policies)
    return await _save_own(NewSchedule(name, spec, item_type=item_type, kwargs=payload))


async def unschedule(name: str) -> None:
    """Delete a schedule; its jobs continue. Raises NotFoundError.

    ```python
    await schedule(nightly, every="1h", name="hourly")
    await unschedule("hourly")
    ```
    """
    refuse_repeated(f"delete the schedule {name!r}")
    async with current_or_new_context() as context, context.connection() as connection:
        await store.delete_schedule(connection, DEFAULT_ORG_ID, name)


async def _save_own(new: NewSchedule) -> str:
    refuse_repeated(f"save the schedule {new.name!r}")
    async with current_or_new_context() as context, context.connection() as connection:
        return (await save_schedule(connection, DEFAULT_ORG_ID, new, replace=True))["name"]


def make_schedule(
    target: JobFunction[...],
    spec: ScheduleSpec,
    *,
    name: str | None = None,
    arguments: Mapping[str, object] | None = None,
    declared_in: str | None = None,
) -> NewSchedule:
    """The schedule of a @job; validates its arguments."""
    if not isinstance(target, JobFunction):  # pyright: ignore[reportUnnecessaryIsInstance]  (of untyped code)
        raise ScheduleError(f"{target!r:.80} is no @job.", remedy="Give a function with @job, without calling it.")
    entrypoint = entrypoint_of(target)
    nominal = target.parameters.nominal
    checked = to_plain_arguments(target.function, arguments or {})
    sample = {} if nominal is None else {nominal.name: "2026-01-01" if nominal.nominal_type == "date" else SAMPLE_TIME}
    target.parameters.bind(**(checked | sample))
    return NewSchedule(
        name or entrypoint, spec, entrypoint, target.name, kwargs=checked,
        nominal_parameter=None if nominal is None else nominal.name,
        nominal_type=None if nominal is None else nominal.nominal_type,
        timeout_seconds=target.timeout_seconds, declared_in=declared_in,
    )  # fmt: skip


SAMPLE_TIME = "2026-01-01T00:00:00+00:00"


async def save_schedule(
    connection: Connection, org_id: UUID, new: NewSchedule, *, replace: bool = False
) -> asyncpg.Record:
    """Insert a schedule, or replace the one of the same name; raises ConflictError if that is not allowed.

    A schedule that keeps its times keeps its next run.
    """
    check_name(new.name)
    new_fields = new.fields()
    async with failpoints.transaction(connection, "save_schedule"):
        now = await read_clock(connection)
        first_run = new.spec.nominal_times(now).next_run(now)
        inserted = await store.insert_schedule(connection, org_id, new.name, new_fields, now, first_run)
        if inserted is not None:
            return inserted
        if not replace:
            raise ConflictError(
                f"There is a schedule {new.name!r:.80} already.", remedy="Choose another name, or replace it."
            )
        existing = await store.lock_schedule(connection, org_id, new.name)
        if existing is None:
            raise ConflictError(f"The schedule {new.name!r:.80} was just deleted.", remedy="Create it again.")
        return await _replace(connection, existing, new_fields, now, first_run)


async def _replace(
    connection: Connection,
    existing: asyncpg.Record,
    new_fields: ScheduleFields,
    now: datetime,
    first_run: datetime | None,
) -> asyncpg.Record:
    if _times(ScheduleFields.from_row(existing)) == _times(new_fields) and existing["next_run_at"] is not None:
        return await store.update_schedule(
            connection, existing["id"], new_fields, existing["anchor_at"], existing["next_run_at"]
        )
    return await store.update_schedule(connection, existing["id"], new_fields, now, first_run)


def _times(fields: ScheduleFields) -> tuple[object, ...]:
    return fields.cron, fields.every_seconds, fields.timezone


def check_name(name: str) -> None:
    """Raise ScheduleError for a name that cannot be stored or written in a URL."""
    is_text = isinstance(name, str) and 0 < len(name) <= NAME_CHARACTERS and name.isprintable()  # pyright: ignore[reportUnnecessaryIsInstance]
    is_valid = is_text and "/" not in name and name == name.strip()
    if not is_valid or name in (".", ".."):
        raise ScheduleError(
            f"A schedule cannot be called {str(name)[:50]!a}.",
            remedy=f"A name has 1 to {NAME_CHARACTERS} printable characters, without '/' and surrounding spaces.",
        )


@dataclass(frozen=True, slots=True)
class SyncResult:
    """Names of schedules by what a sync did or would do."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def find_declared_schedules(module_name: str) -> list[NewSchedule]:
    """Schedules of the `@job`s of a module and, for a package, of its modules; raises EntrypointError."""
    declared: dict[str, NewSchedule] = {}
    for module in _iter_modules(module_name):
        for value in list(vars(module).values()):
            if isinstance(value, JobFunction) and value.function.__module__ == module.__name__ and value.schedule:
                new = make_schedule(value, value.schedule, declared_in=module.__name__)
                declared[new.name] = new
    return list(declared.values())


def _iter_modules(module_name: str) -> Iterator[ModuleType]:
    try:
        module = importlib.import_module(module_name)
        yield module
        for info in pkgutil.walk_packages(getattr(module, "__path__", []), f"{module_name}."):
            if not info.name.endswith(".__main__"):
                yield importlib.import_module(info.name)
    except ImportError as error:
        raise EntrypointError(
            f"The module {module_name!r:.80} cannot be imported: {error}.",
            remedy="Run the command in the directory of the module, or install it.",
        ) from None


async def sync_schedules(
    connection: Connection,
    org_id: UUID,
    module: str,
    declared: Sequence[NewSchedule],
    *,
    modules: Collection[str] | None = None,
    dry_run: bool = False,
) -> SyncResult:
    """Make the schedules of a module those that its code declares; with `modules` only those of these submodules.

    Schedules of jobs that are gone are stopped and marked as missing, not deleted. Schedules made at run time are not
    changed.
    """
    result: dict[str, list[str]] = {"added": [], "changed": [], "unchanged": [], "missing": []}
    async with failpoints.transaction(connection, "sync_schedules"):
        rows = await store.list_declared_schedules(connection, org_id, module)
        existing = {row["name"]: row for row in rows if modules is None or row["declared_in"] in modules}
        for new in sorted(declared, key=lambda item: item.name):
            row = existing.pop(new.name, None)
            if row is None:
                result["added"].append(new.name)
            elif row["missing_at"] is None and _same(ScheduleFields.from_row(row), new.fields()):
                result["unchanged"].append(new.name)
                continue
            else:
                result["changed"].append(new.name)
            if not dry_run:
                await save_schedule(connection, org_id, new, replace=row is not None)
        for name, row in existing.items():
            result["missing"].append(name)
            if not dry_run:
                error = f"{row['declared_in']} no longer declares a schedule for {row['entrypoint']}."
                await store.mark_schedule_missing(connection, row["id"], error)
    return SyncResult(**{key: tuple(names) for key, names in result.items()})


def _same(first: ScheduleFields, second: ScheduleFields) -> bool:
    """Whether two schedules are equal; the texts of JSON values may differ."""

    def parse(fields: ScheduleFields) -> tuple[Any, Any, ScheduleFields]:
        return json.loads(fields.kwargs), json.loads(fields.options), replace(fields, kwargs="", options="")

    return parse(first) == parse(second)
