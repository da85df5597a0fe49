"""Start runs of a schedule: a job or a queue item per nominal time, once."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from aaiclick.orchestration.job_labels import MAX_TRIGGER_BYTES, registered_labels
from aaiclick.orchestration.jobs_by_function_name import make_named_plan
from aaiclick.orchestration.schedule_spec import format_nominal, nominal_times_of
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.job_functions import find_job_function
from aaiclick.store.engine.new_jobs import NewJob
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.engine.submit import submit_job
from aaiclick.store.job_policy import DEFAULT_POLICY, JobPolicy
from aaiclick.store.task_options import TaskOptions

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

RunCause = Literal["schedule", "fire", "backfill"]


async def start_run(
    connection: Connection, schedule: asyncpg.Record, nominal: datetime, cause: RunCause = "schedule"
) -> tuple[int, bool]:
    """Start the run of a nominal time, in the caller's transaction; returns its id, and whether it is new.

    A run that is fired by hand is new each time.
    """
    moment = nominal.isoformat()
    key = None if cause == "fire" else f"schedule:{schedule['id']}:{moment}"
    kwargs = _make_arguments(schedule, nominal)
    options = TaskOptions.from_json(schedule["options"])
    run_id = get_snowflake_id()
    if schedule["item_type"] is not None:
        item = NewTask(run_id, schedule["item_type"], kwargs=kwargs, idempotency_key=key, options=options)
        (started_id,) = await enqueue_tasks(connection, [item], schedule["org_id"])
        return started_id, started_id == run_id
    entrypoint: str = schedule["entrypoint"]
    trigger = {"kind": cause, "schedule": schedule["name"], "nominal": moment, "entrypoint": entrypoint}
    if len(kwargs) <= MAX_TRIGGER_BYTES:
        trigger["arguments"] = json.loads(kwargs)
    function = await find_job_function(connection, schedule["org_id"], entrypoint)
    timeout = schedule["timeout_seconds"] or get_settings().job_default_timeout_seconds
    policy = DEFAULT_POLICY if function is None else JobPolicy.from_json(function["policy"])
    version = None if function is None else function["code_version"]
    job = NewJob(
        run_id, schedule["job_name"], schedule["org_id"], timeout, key, trigger=json.dumps(trigger),
        schedule_id=schedule["id"], tags=None if function is None else registered_labels(function),
        policy=policy, pinned_version=policy.require_pinned_version(version, entrypoint),
    )  # fmt: skip
    started_id = await submit_job(connection, job, make_named_plan(entrypoint, kwargs, policy, options))
    return started_id, started_id == run_id


def _make_arguments(schedule: asyncpg.Record, nominal: datetime) -> str:
    if schedule["nominal_parameter"] is None:
        return schedule["kwargs"]
    text = format_nominal(nominal, schedule["nominal_type"], nominal_times_of(schedule))
    return json.dumps(json.loads(schedule["kwargs"]) | {schedule["nominal_parameter"]: text})
