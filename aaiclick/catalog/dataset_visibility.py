"""What a reader may see of DAGs and tasks: nothing that names or holds a dataset that its roles do not allow.

The YAML of a DAG is shown only to readers of every dataset that it names; dataset names occur in queries, comments and
settings, so a part of the text would leak them.

The existence, status, times and attempts of a task are visible to everyone. Errors, logs, arguments and partitions are
visible to readers of all inputs and outputs of its definition, and each output to its readers. A task that another
task added has the visibility of that task.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from aaiclick.catalog.errors import DagError
from aaiclick.store.catalog import datasets as store
from aaiclick.store.engine import queries
from aaiclick.store.engine.explain_task import Reason, explain_task
from aaiclick.store.tables import table_references

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.catalog.dag_versions import VersionText
    from aaiclick.store.catalog.datasets import Reader
    from aaiclick.store.postgres_connections import Connection

    Row = Mapping[str, Any] | asyncpg.Record

REDACTED_ERROR = (
    "The error is hidden: your roles do not include every dataset that the task reads and writes. "
    "Ask an admin of the organisation for such a role."
)
"""Replaces the text of a hidden error."""

_REDACTED_FIELDS = {
    "kwargs": "{}",
    "partitions": None,
    "idempotency_key": None,
    "concurrency_key": None,
    "rate_key": None,
    "dedupe_key": None,
}
_TASK_ERROR = re.compile(r"^.*? \(task (\d{1,19})\) failed in attempt \d+: ", re.DOTALL)
"""Prefix of a job error that repeats the error of one of its tasks (`fail_tasks`)."""


async def may_read_yaml(connection: Connection, reader: Reader, version: VersionText | None) -> bool:
    """Return whether the reader may read every dataset that the YAML of a version names; True without a version."""
    if version is None or reader.roles is None:
        return True
    from aaiclick.catalog import sql_yaml_analysis  # slow import: sqlglot and the schema of DAG files

    try:
        dag = await sql_yaml_analysis.load_dag(version.yaml)
    except DagError:
        return False
    published = [publication.name or publication.output for publication in dag.publish]
    return await store.may_read_version(connection, reader, version.id, published)


async def hidden_task_ids(connection: Connection, reader: Reader, task_ids: Iterable[int]) -> set[int]:
    """Return the ids of tasks with errors, logs and arguments that are hidden from the reader."""
    requested = set(task_ids)
    if reader.roles is None or not requested:
        return set()
    readable = await store.load_task_visibility(connection, reader, requested)
    return {task_id for task_id, row in readable.items() if not row["everything"]}


async def redact_tasks(connection: Connection, reader: Reader, tasks: Sequence[Row]) -> Sequence[Row]:
    """Return the tasks without the fields that are hidden from the reader."""
    if reader.roles is None or not tasks:
        return tasks
    readable = await store.load_task_visibility(connection, reader, {task["id"] for task in tasks})
    return [task if task["id"] not in readable else _redact_task(dict(task), readable[task["id"]]) for task in tasks]


async def redact_attempts(connection: Connection, reader: Reader, attempts: Sequence[asyncpg.Record]) -> Sequence[Row]:
    """Return the attempts (rows with `task_id`) without errors that are hidden from the reader."""
    hidden = await hidden_task_ids(connection, reader, {row["task_id"] for row in attempts})
    return [redact_error(row) if row["task_id"] in hidden else row for row in attempts]


async def redact_jobs(connection: Connection, reader: Reader, jobs: Sequence[Row]) -> Sequence[Row]:
    """Return the jobs without errors of hidden tasks; which task failed stays visible."""
    causes = {job["id"]: cause for job in jobs if job["error"] and (cause := _TASK_ERROR.match(job["error"]))}
    hidden = await hidden_task_ids(connection, reader, {int(cause[1]) for cause in causes.values()})
    return [
        dict(job) | {"error": causes[job["id"]][0] + REDACTED_ERROR}
        if job["id"] in causes and int(causes[job["id"]][1]) in hidden
        else job
        for job in jobs
    ]


async def explain_waiting(connection: Connection, reader: Reader, task_id: int) -> list[Reason]:
    """Explain why a task waits, without its concurrency key if the task is hidden from the reader."""
    reasons = await explain_task(connection, task_id)
    if not await hidden_task_ids(connection, reader, [task_id]):
        return reasons
    return [
        replace(reason, text="no free concurrency slot") if reason.code == "concurrency" else reason
        for reason in reasons
    ]


async def hidden_dead_letters(connection: Connection, reader: Reader) -> queries.Origins:
    """Return the origins of dead letters with errors that are hidden from the reader."""
    if reader.roles is None:
        return queries.NO_ORIGINS
    origins = await queries.list_dead_letter_origins(connection, reader.org_id)
    hidden = await hidden_task_ids(connection, reader, (row["id"] for row in origins))
    rows = [row for row in origins if row["id"] in hidden]
    return queries.Origins(
        tuple(row["definition_id"] for row in rows if row["definition_id"] is not None),
        tuple(row["added_by"] for row in rows if row["definition_id"] is None),
    )


async def hidden_tables(owner: Connection, reader: Reader, names: Sequence[str]) -> set[str]:
    """Return the tables that hold arguments or results of tasks that are hidden from the reader.

    A table without references is hidden, since its task is no longer known. `owner` bypasses row-level security.
    """
    from aaiclick.orchestration.table_audit import stored_name  # slow import: ClickHouse

    if reader.roles is None or not names:
        return set()
    tables = {stored_name(name, reader.org_id): name for name in names}
    holders = await table_references.list_table_holders(owner, list(tables), reader.org_id)
    hidden = await hidden_task_ids(owner, reader, (row["task_id"] for row in holders if row["task_id"] is not None))
    return {
        tables[row["table_name"]]
        for row in holders
        if row["task_id"] in hidden or (row["task_id"] is None and (row["of_dag"] or row["owner"] is None))
    }


def redact_error(row: Row) -> Row:
    """Return a task or an attempt without its error."""
    redacted: dict[str, object] = dict(row)
    redacted["error"] = redacted["error"] and REDACTED_ERROR
    return redacted | {"error_fingerprint": None} if "error_fingerprint" in redacted else redacted


def _redact_task(task: dict[str, Any], readable: asyncpg.Record) -> Row:
    if readable["everything"]:
        return task
    output_names = set[str](readable["outputs"])
    outputs = {
        name: _redact_outputs(task[name], output_names) for name in ("outputs", "result") if task.get(name) is not None
    }
    silent = redact_error(task) if "error" in task else task
    return {**silent, **outputs, **{name: value for name, value in _REDACTED_FIELDS.items() if name in task}}


def _redact_outputs(outputs: str, visible_names: set[str]) -> str:
    """Return the outputs that the reader may see, and the tasks of reused results."""
    parsed: Any = json.loads(outputs)
    if not isinstance(parsed, dict):
        return "null"
    outputs_by_name = cast("dict[str, Any]", parsed)
    visible = {name: value for name, value in outputs_by_name.items() if name in visible_names}
    reused = [{"made_by": entry["made_by"]} for entry in outputs_by_name.get("reused", ()) if "made_by" in entry]
    return json.dumps(visible | {"reused": reused} if reused else visible)
