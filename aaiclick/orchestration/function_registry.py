"""Registration of `@job` functions: workers store what they have imported, for lists, checks and runs."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import failpoints
from aaiclick.errors import NotFoundError
from aaiclick.orchestration.decorators import JobFunction
from aaiclick.orchestration.handler_registry import entrypoint_of
from aaiclick.orchestration.job_labels import make_trigger, registered_labels, split_labels
from aaiclick.orchestration.jobs_by_function_name import make_named_plan
from aaiclick.orchestration.json_schema_validation import TooManyStepsError, check_arguments
from aaiclick.orchestration.schedule_spec import ScheduleSpec
from aaiclick.orchestration.schedules import NewSchedule, make_schedule, sync_schedules
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import job_functions as store
from aaiclick.store.engine.job_functions import JobFunctionFields
from aaiclick.store.engine.new_jobs import NewJob
from aaiclick.store.engine.submit import submit_job
from aaiclick.store.job_policy import JobPolicy

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

MAX_DOCUMENTATION = 10_000
LOOP_STEPS = 2_000
"""Arguments that take more steps to validate are validated in a thread, which does not block the event loop."""


@dataclass(frozen=True, slots=True)
class ModuleJobs:
    """The `@job` functions of imported modules, and the schedules that they declare."""

    modules: Sequence[str]
    functions: Sequence[JobFunctionFields]
    schedules: Sequence[NewSchedule]


def collect_job_functions(named_modules: Sequence[str], code_version: str | None = None) -> ModuleJobs:
    """The functions of imported modules that are among `named_modules`, or below them."""
    modules: list[str] = []
    functions: list[JobFunctionFields] = []
    schedules: list[NewSchedule] = []
    for name, module in sorted(sys.modules.items()):
        if any(name == named or name.startswith(f"{named}.") for named in named_modules):
            modules.append(name)
            for function in iter_job_functions(module):
                functions.append(describe_job_function(function, code_version))
                if function.schedule is not None:
                    schedules.append(make_schedule(function, function.schedule, declared_in=name))
    return ModuleJobs(modules, functions, schedules)


def iter_job_functions(module: ModuleType) -> Iterator[JobFunction[...]]:
    """The `@job`s that a module defines; those that it imports belong to other modules."""
    for value in list(vars(module).values()):
        if isinstance(value, JobFunction) and value.function.__module__ == module.__name__:
            yield value


def describe_job_function(function: JobFunction[...], code_version: str | None = None) -> JobFunctionFields:
    """The row of a `@job`."""
    entrypoint = entrypoint_of(function)
    tags, owner = split_labels(function.labels)
    return JobFunctionFields(
        entrypoint,
        entrypoint.rpartition(".")[0],
        function.name,
        (inspect.getdoc(function.function) or "")[:MAX_DOCUMENTATION],
        json.dumps(function.parameters.schema),
        None if function.schedule is None else _describe_schedule(function.schedule),
        function.timeout_seconds,
        json.dumps(tags),
        owner,
        code_version,
        function.policy.to_json(),
    )


def _describe_schedule(spec: ScheduleSpec) -> str:
    return f"every {spec.every}" if spec.every is not None else f"{spec.cron} {spec.timezone}"


async def register_module_jobs(connection: Connection, org_id: UUID, jobs: ModuleJobs) -> None:
    """Store functions and declared schedules of modules; those that their code no longer has are removed.

    Schedules without code are stopped and marked as missing.
    """
    async with failpoints.transaction(connection, "register_module_jobs"):
        await store.replace_job_functions(connection, org_id, jobs.modules, jobs.functions)
        for root in sorted({module.partition(".")[0] for module in jobs.modules}):
            declared = [new for new in jobs.schedules if (new.declared_in or "").partition(".")[0] == root]
            await sync_schedules(connection, org_id, root, declared, modules=frozenset(jobs.modules))


async def check_registered_arguments(
    connection: Connection, org_id: UUID, entrypoint: str, arguments: Mapping[str, object]
) -> asyncpg.Record | None:
    """Validate arguments by the registered schema; returns the function's row, or None if it is not registered."""
    row = await store.find_job_function(connection, org_id, entrypoint)
    if row is not None:
        schema = json.loads(row["parameters"])
        try:
            check_arguments(entrypoint, schema, arguments, max_steps=LOOP_STEPS)
        except TooManyStepsError:
            await asyncio.to_thread(check_arguments, entrypoint, schema, arguments)
    return row


async def run_job_function(
    connection: Connection,
    org_id: UUID,
    entrypoint: str,
    arguments: Mapping[str, object],
    *,
    tags: str | None = None,
    new_id: int | None = None,
) -> tuple[int, str]:
    """Submit a job of a registered function; returns its id and name. Raises NotFoundError and SubmitError.

    `tags` (JSON text, with the owner) replace those of the function. The job has another id than `new_id` if it is an
    unfinished one, which runs instead.
    """
    row = await check_registered_arguments(connection, org_id, entrypoint, arguments)
    if row is None:
        raise unknown_job_function(entrypoint)
    policy = JobPolicy.from_json(row["policy"])
    job = NewJob(
        get_snowflake_id() if new_id is None else new_id,
        row["name"],
        org_id,
        row["timeout_seconds"] or get_settings().job_default_timeout_seconds,
        trigger=make_trigger(entrypoint, arguments),
        tags=tags or registered_labels(row),
        policy=policy,
        pinned_version=policy.require_pinned_version(row["code_version"], entrypoint),
    )
    plan = make_named_plan(entrypoint, json.dumps(dict(arguments)), policy)
    return await submit_job(connection, job, plan), row["name"]


def unknown_job_function(entrypoint: str) -> NotFoundError:
    return NotFoundError(
        f"No worker has registered a @job {entrypoint!r:.80}.",
        remedy="Start a worker with its module: aaiclick worker start --import MODULE. "
        "'aaiclick functions ls' lists the registered ones.",
    )
