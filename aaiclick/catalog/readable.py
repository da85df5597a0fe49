"""Who may see the text of a DAG: whoever may read every dataset that it names. And what of its tasks.

A part of the text is not shown instead: names are in queries, comments and settings, and what is cut out tells of
itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aaiclick.catalog.dags.load import load_dag
from aaiclick.catalog.errors import DagError
from aaiclick.store import catalog_datasets as store

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.catalog_datasets import Reader
    from aaiclick.store.engine import Connection


async def may_read_text(connection: Connection, reader: Reader, version: asyncpg.Record | None) -> bool:
    """Whether the text of a version (id and yaml; None: there is none) names nothing that is hidden from the reader."""
    if version is None or reader.roles is None:
        return True
    try:
        published = [each.name or each.output for each in load_dag(version["yaml"]).publish]
    except DagError:
        return False
    return await store.may_read_version(connection, reader, version["id"], published)


async def as_seen(
    connection: Connection, reader: Reader, tasks: Sequence[asyncpg.Record]
) -> Sequence[Mapping[str, Any] | asyncpg.Record]:
    """Tasks with what the reader may know of datasets, which is what `outputs`, `result` and `kwargs` tell of."""
    definitions = {task["definition_id"] for task in tasks} - {None}
    if reader.roles is None or not definitions:
        return tasks
    readable = await store.readable_definitions(connection, reader, definitions)
    return [
        task if task["definition_id"] is None else _cut(dict(task), readable.get(task["definition_id"]))
        for task in tasks
    ]


def _cut(task: dict[str, Any], readable: asyncpg.Record | None) -> dict[str, Any]:
    """A definition that is there no more tells nobody anything."""
    if readable is not None and readable["everything"]:
        return task
    names = set[str]() if readable is None else set[str](readable["outputs"])
    told = {name: _told(task[name], names) for name in ("outputs", "result") if task.get(name) is not None}
    return task | told | ({"kwargs": "{}"} if "kwargs" in task else {})


def _told(outputs: str, names: set[str]) -> str:
    """Of what a task made the part that has these names, and by which tasks it was made if it was there already."""
    found: dict[str, Any] = json.loads(outputs)
    kept = {name: said for name, said in found.items() if name in names}
    return json.dumps(kept | {name: found[name] for name in ("reused",) if isinstance(found.get(name), list)})
