"""Rerun a job: submit its original nodes as a new job. Dynamic tasks are not copied; they will be added again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from aaiclick.errors import SubmitError
from aaiclick.snowflake import get_snowflake_id, get_snowflake_ids
from aaiclick.store.engine.job_concurrency import is_turn
from aaiclick.store.engine.leases_and_outcomes import WAIT_ARGUMENT
from aaiclick.store.engine.result_placeholders import TASK_RESULT, resolve_placeholders, temporary_tables_in
from aaiclick.store.engine.retry_and_redrive import COMPENSATOR
from aaiclick.store.engine.submission_plan import NewGroup, NewTask, Plan
from aaiclick.store.engine.submit import NewJob, submit_job
from aaiclick.store.job_policy import DEFAULT_POLICY, JobPolicy
from aaiclick.store.statements import statement
from aaiclick.store.task_options import TaskOptions

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

MAX_NODES = 10_000

HANDLERS_ENTRYPOINT = "aaiclick.orchestration.jobs_by_function_name.run_job_handlers"
"""Entrypoint of the task that adds the handlers of a function if its call has failed."""


async def rerun_job(connection: Connection, job: Any, *, new_id: int | None = None) -> int:
    """Submit a copy of a job, with its labels, call and policy; returns the id of the new job.

    With `when_busy="skip"` it may be that of an unfinished one, and not `new_id`.
    """
    if job["definition_id"] is not None or job["dag_version_id"] is not None:
        raise SubmitError("This job was started by a DAG.", remedy="Fire its source again, or start a backfill.")
    tasks = await connection.fetch(statement("list_submitted_tasks"), job["id"], MAX_NODES + 1)
    groups = await connection.fetch(statement("list_submitted_groups"), job["id"], MAX_NODES + 1)
    if len(tasks) > MAX_NODES or len(groups) > MAX_NODES:
        raise SubmitError(
            f"This job was submitted with more than {MAX_NODES} tasks.", remedy="Submit it again with its own program."
        )
    tasks = [row for row in tasks if not is_turn(row)]
    old_ids = [row["id"] for row in (*groups, *tasks)]
    new_ids = dict(zip(old_ids, get_snowflake_ids(len(old_ids)), strict=True))
    edges = await connection.fetch(statement("list_incoming_edges"), old_ids, 20 * MAX_NODES)
    names = {new_ids[row["id"]]: row["type"] for row in tasks}
    references = {task_id: {"object_type": TASK_RESULT, "task_id": str(new_id)} for task_id, new_id in new_ids.items()}
    texts = {str(old): str(new) for old, new in new_ids.items()}
    new_tasks: list[NewTask] = []
    tables: list[tuple[int, str]] = []
    for row in tasks:
        kwargs = resolve_placeholders(reset_arguments(json.loads(row["kwargs"])), references)
        _replace_task_ids(row["entrypoint"], kwargs, texts)
        tables += [(new_ids[row["id"]], table) for table in temporary_tables_in(kwargs)]
        new_tasks.append(_copy_task(row, new_ids, json.dumps(kwargs)))
    plan = Plan(
        new_tasks,
        [NewGroup(new_ids[row["id"]], row["name"], new_ids.get(row["parent_group_id"])) for row in groups],
        [(new_ids[edge["previous_id"]], new_ids[edge["next_id"]]) for edge in edges if edge["previous_id"] in new_ids],
        tables,
    )
    new_job = NewJob(
        get_snowflake_id() if new_id is None else new_id, job["name"], job["org_id"], job["timeout_seconds"],
        trigger=job["trigger"], tags=job["tags"],
        policy=DEFAULT_POLICY if job["policy"] is None else JobPolicy.from_json(job["policy"]),
    )  # fmt: skip
    return await submit_job(connection, new_job, plan, names)


def reset_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments without what the engine has written: states of waits, and failures for handlers."""
    return {
        name: {"object_type": "failure"} if isinstance(value, dict) and value.get("object_type") == "failure" else value  # pyright: ignore[reportUnknownMemberType]
        for name, value in kwargs.items()
        if name != WAIT_ARGUMENT
    }


def _replace_task_ids(entrypoint: str | None, kwargs: dict[str, Any], new_ids: Mapping[str, str]) -> None:
    """Let arguments of handlers of the engine name the copied tasks; values of users that look like ids stay."""
    if entrypoint == COMPENSATOR and isinstance(kwargs.get("steps"), list):
        for step in kwargs["steps"]:
            if isinstance(step, dict):
                _replace_id(cast("dict[str, Any]", step), "task_id", new_ids)
    elif entrypoint == HANDLERS_ENTRYPOINT:
        _replace_id(kwargs, "builder_id", new_ids)


def _replace_id(fields: dict[str, Any], name: str, new_ids: Mapping[str, str]) -> None:
    if isinstance(old := fields.get(name), str) and old in new_ids:
        fields[name] = new_ids[old]


def _copy_task(row: Any, new_ids: Mapping[int, int], kwargs: str) -> NewTask:
    options = replace(TaskOptions.from_row(row), run_at=None)
    group_id = new_ids.get(row["group_id"])
    return NewTask(new_ids[row["id"]], row["type"], row["entrypoint"], kwargs, group_id, options=options)
