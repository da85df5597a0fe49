"""Whether what tasks read is there yet: what a job's tasks hand to each other is released when the job is over."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aaiclick.errors import ConflictError
from aaiclick.store.references import results_needed, tables_in
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


async def check_inputs(connection: Connection, job_id: int, cleared: Iterable[int], tasks: Iterable[int]) -> None:
    """Refuse to run `tasks` again, which are those `cleared` and all that follows, if something they read is gone. The
    remedy names the tasks that have to run again as well.
    """
    own = frozenset(tasks)
    looked_at, known, roots = set(own), set(own), set[int]()
    while known:
        makers = await _makers_of_what_is_gone(connection, job_id, known)
        roots |= {task for task in known - own if not makers.get(task)}
        known = set[int]().union(*makers.values()) - looked_at
        looked_at |= known
    if roots:
        again = " ".join(map(str, sorted(roots | set(cleared))))
        raise ConflictError(
            "What it reads was released when the job was over.",
            remedy=f"Make that again as well, with all that follows: aaiclick tasks clear {again}",
        )


async def _makers_of_what_is_gone(connection: Connection, job_id: int, tasks: set[int]) -> dict[int, set[int]]:
    """By task, the others whose results it reads and that are gone."""
    rows = await connection.fetch(statement("kwargs_with_tables"), sorted(tasks))
    given = {row["id"]: json.loads(row["kwargs"]) for row in rows}
    needed = {task: results_needed(kwargs) - tasks for task, kwargs in given.items()}
    results = await connection.fetch(statement("task_results"), sorted(set[int]().union(*needed.values())), job_id)
    made = {row["id"]: tables_in(json.loads(row["result"])) for row in results if row["result"] is not None}
    arguments = {task: tables_in(kwargs) for task, kwargs in given.items()}
    tables = set[str]().union(*made.values(), *arguments.values())
    held = {row["table_name"] for row in await connection.fetch(statement("referred_tables"), sorted(tables))}
    lost = sorted(task for task, names in arguments.items() if names - held)
    if lost:
        raise ConflictError(
            f"An Object that task {lost[0]} was given was released when the job was over.",
            remedy="Make it again, and submit the job anew.",
        )
    gone = {maker for maker, names in made.items() if names - held}
    return {task: makers & gone for task, makers in needed.items()}
