"""What somebody may see of DAGs and of their tasks: nothing that names or holds a dataset which it may not read.

The text of a DAG is seen by whoever may read every dataset that it names. A part of it is not shown instead: names are
in queries, comments and settings, and what is cut out tells of itself.

Of a task everybody sees that it is there, its state, its times and its attempts. What it says in its own words (errors,
log), what it was given and which partitions it is about, is seen by whoever may read all that its job of the DAG reads
and makes; of what it made, each output by whoever may read that. A task that another added is seen as that one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from aaiclick.catalog import analysis
from aaiclick.catalog.errors import DagError
from aaiclick.store import catalog_datasets as store
from aaiclick.store import reads, tables
from aaiclick.store.waiting import Reason, why_waiting

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.catalog_datasets import Reader
    from aaiclick.store.engine import Connection

    Seen = Mapping[str, Any] | asyncpg.Record

WITHHELD = (
    "What it says is told to those who may read all that it reads and makes. "
    "Ask an admin of the organisation for a role that does."
)
"""Stands where an error would."""

_CUT = {"kwargs": "{}", "partitions": None, "idempotency_key": None, "concurrency_key": None, "dedupe_key": None}
_CAUSE = re.compile(r"^.*? \(task (\d{1,19})\) failed in attempt \d+: ", re.DOTALL)
"""How the error of a job begins that is the error of one of its tasks (`fail.sql`)."""


async def may_read_text(connection: Connection, reader: Reader, version: asyncpg.Record | None) -> bool:
    """Whether the text of a version (id and yaml; None: there is none) names nothing that is hidden from the reader."""
    if version is None or reader.roles is None:
        return True
    try:
        dag = await analysis.load_dag(version["yaml"])
    except DagError:
        return False
    published = [each.name or each.output for each in dag.publish]
    return await store.may_read_version(connection, reader, version["id"], published)


async def untold(connection: Connection, reader: Reader, task_ids: Iterable[int]) -> set[int]:
    """Those of the tasks whose own words are not for the reader."""
    asked = set(task_ids)
    if reader.roles is None or not asked:
        return set()
    found = await store.readable_tasks(connection, reader, asked)
    return {task_id for task_id, row in found.items() if not row["everything"]}


async def as_seen(connection: Connection, reader: Reader, tasks: Sequence[Seen]) -> Sequence[Seen]:
    """Tasks with what the reader may know of them."""
    if reader.roles is None or not tasks:
        return tasks
    found = await store.readable_tasks(connection, reader, {task["id"] for task in tasks})
    return [task if task["id"] not in found else _cut(dict(task), found[task["id"]]) for task in tasks]


async def attempts_as_seen(
    connection: Connection, reader: Reader, attempts: Sequence[asyncpg.Record]
) -> Sequence[Seen]:
    """Attempts of tasks (`task_id`) with what the reader may know of them."""
    hidden = await untold(connection, reader, {row["task_id"] for row in attempts})
    return [speechless(row) if row["task_id"] in hidden else row for row in attempts]


async def jobs_as_seen(connection: Connection, reader: Reader, jobs: Sequence[Seen]) -> Sequence[Seen]:
    """Jobs with what the reader may know of the task that failed them; which one it was, everybody may."""
    causes = {job["id"]: cause for job in jobs if job["error"] and (cause := _CAUSE.match(job["error"]))}
    hidden = await untold(connection, reader, {int(cause[1]) for cause in causes.values()})
    return [
        dict(job) | {"error": causes[job["id"]][0] + WITHHELD}
        if job["id"] in causes and int(causes[job["id"]][1]) in hidden
        else job
        for job in jobs
    ]


async def why_as_seen(connection: Connection, reader: Reader, task_id: int) -> list[Reason]:
    """Why a task waits, without the key that its own code has chosen."""
    reasons = await why_waiting(connection, task_id)
    if not await untold(connection, reader, [task_id]):
        return reasons
    return [replace(each, words="others have its slots") if each.code == "concurrency" else each for each in reasons]


async def untold_dead_letters(connection: Connection, reader: Reader) -> reads.Origins:
    """Where the dead letters come from whose errors are not for the reader."""
    if reader.roles is None:
        return reads.NOWHERE
    origins = await reads.dead_letter_origins(connection, reader.org_id)
    hidden = await untold(connection, reader, (row["id"] for row in origins))
    rows = [row for row in origins if row["id"] in hidden]
    return reads.Origins(
        tuple(row["definition_id"] for row in rows if row["definition_id"] is not None),
        tuple(row["added_by"] for row in rows if row["definition_id"] is None),
    )


async def untold_tables(owner: Connection, reader: Reader, names: Sequence[str]) -> set[str]:
    """Those of the tables that hold what tasks made or were given whose words are not for the reader.

    A table that nobody holds any more is among them: whose it was is forgotten. `owner` sees the books of all tables.
    """
    if reader.roles is None or not names:
        return set()
    holders = await tables.holders_of(owner, names, reader.org_id)
    hidden = await untold(owner, reader, (row["task_id"] for row in holders if row["task_id"] is not None))
    return {
        row["table_name"]
        for row in holders
        if row["task_id"] in hidden or (row["task_id"] is None and (row["of_dag"] or row["owner"] is None))
    }


def speechless(row: Seen) -> Seen:
    """A task or an attempt without its own words."""
    said: dict[str, Any] = dict(row)
    said["error"] = said["error"] and WITHHELD
    return said | {"error_fingerprint": None} if "error_fingerprint" in said else said


def _cut(task: dict[str, Any], readable: asyncpg.Record) -> Seen:
    if readable["everything"]:
        return task
    names = set[str](readable["outputs"])
    told = {name: _told(task[name], names) for name in ("outputs", "result") if task.get(name) is not None}
    silent = speechless(task) if "error" in task else task
    return {**silent, **told, **{name: value for name, value in _CUT.items() if name in task}}


def _told(outputs: str, names: set[str]) -> str:
    """Of what a task made the part that has these names, and by which tasks it was made if it was there already."""
    read: Any = json.loads(outputs)
    if not isinstance(read, dict):
        return "null"
    found = cast("dict[str, Any]", read)
    kept = {name: said for name, said in found.items() if name in names}
    reused = [{"made_by": each["made_by"]} for each in found.get("reused", ()) if "made_by" in each]
    return json.dumps(kept | {"reused": reused} if reused else kept)
