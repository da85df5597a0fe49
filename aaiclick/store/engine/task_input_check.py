"""Check before a clear that the inputs of tasks still exist: intermediate tables are released when a job ends."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aaiclick.errors import ConflictError
from aaiclick.store.engine.result_placeholders import referenced_task_ids, temporary_tables_in
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


async def check_inputs(connection: Connection, job_id: int, cleared: Iterable[int], tasks: Iterable[int]) -> None:
    """Raise ConflictError if an input of `tasks` (those `cleared` and everything downstream) was released.

    The remedy names the producers to clear as well.
    """
    task_set = frozenset(tasks)
    visited, frontier, missing_producers = set(task_set), set(task_set), set[int]()
    while frontier:
        producers = await _producers_of_released_inputs(connection, job_id, frontier)
        missing_producers |= {task for task in frontier - task_set if not producers.get(task)}
        frontier = set[int]().union(*producers.values()) - visited
        visited |= frontier
    if missing_producers:
        task_arguments = " ".join(map(str, sorted(missing_producers | set(cleared))))
        raise ConflictError(
            "Inputs of the task were released when the job ended.",
            remedy=f"Clear their producers as well: aaiclick tasks clear {task_arguments}",
        )


async def _producers_of_released_inputs(connection: Connection, job_id: int, tasks: set[int]) -> dict[int, set[int]]:
    """Task → the other tasks that it reads results of and that have released tables."""
    rows = await connection.fetch(statement("load_kwargs_with_references"), sorted(tasks))
    kwargs_by_task = {row["id"]: json.loads(row["kwargs"]) for row in rows}
    producers_by_task = {task: referenced_task_ids(kwargs) - tasks for task, kwargs in kwargs_by_task.items()}
    results = await connection.fetch(
        statement("load_task_results"), sorted(set[int]().union(*producers_by_task.values())), job_id
    )
    result_tables = {
        row["id"]: temporary_tables_in(json.loads(row["result"])) for row in results if row["result"] is not None
    }
    argument_tables = {task: temporary_tables_in(kwargs) for task, kwargs in kwargs_by_task.items()}
    tables = set[str]().union(*result_tables.values(), *argument_tables.values())
    referenced = {
        row["table_name"] for row in await connection.fetch(statement("find_referenced_tables"), sorted(tables))
    }
    without_arguments = sorted(task for task, names in argument_tables.items() if names - referenced)
    if without_arguments:
        raise ConflictError(
            f"An Object among the arguments of task {without_arguments[0]} was released when the job ended.",
            remedy="Create the Object again and submit a new job.",
        )
    released = {maker for maker, names in result_tables.items() if names - referenced}
    return {task: makers & released for task, makers in producers_by_task.items()}
