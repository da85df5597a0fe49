"""Whether what a task from afar would leave behind is its own business.

A worker without a database says itself what its completion writes. It may say so of what its definition reads and
makes, and of nothing else: not of other datasets, not of other definitions' states, not of other versions being filled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.running.parquet import in_files
from aaiclick.catalog.running.storage import Layout
from aaiclick.catalog.running.work import Work, find_work
from aaiclick.store import catalog_runs

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


async def checked_effects(connection: Connection, task: asyncpg.Record | None, effects: Mapping[str, Any]) -> str:
    """The effects of a task as its completion takes them; raises DatasetError for those that are not its own."""
    if task is None or task["definition_id"] is None:
        raise DatasetError("Only tasks of a DAG leave anything behind in datasets.")
    work = await find_work(connection, task["definition_id"])
    event: Mapping[str, Any] = json.loads(task["kwargs"]).get("event") or {}
    strange = foreign(work, event, effects) or await _untaken(connection, effects) or _unreadable(effects)
    if strange is not None:
        raise DatasetError(f"The task {task['id']} of {work.dag_name}.{work.name} may not write {strange}.")
    return json.dumps(effects)


async def checked_emission(connection: Connection, task: asyncpg.Record | None, effects: Mapping[str, Any]) -> str:
    """The same for updates that a source emits while it runs."""
    checked = await checked_effects(connection, task, effects)
    assert task is not None  # noqa: S101  (it was checked)
    work = await find_work(connection, task["definition_id"])
    if work.spec.activation != "source":
        raise DatasetError(f"{work.dag_name}.{work.name} is not a source: only sources emit events while they run.")
    return checked


async def _untaken(connection: Connection, effects: Mapping[str, Any]) -> str | None:
    """A ticket that nobody took would stand above all that come after it."""
    highest = max((int(each["ticket"]) for each in effects["updates"]), default=0)
    if highest and highest > await catalog_runs.last_ticket(connection):
        return f"with the ticket {highest}, which was never taken"
    return None


def _unreadable(effects: Mapping[str, Any]) -> str | None:
    """Columns that are not a layout would be stored, and every later reader of the generation would fail."""
    for update in effects["updates"]:
        try:
            Layout.from_json(update["columns"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return f"columns of the dataset {update['dataset']} that cannot be read"
    return None


def foreign(work: Work, event: Mapping[str, Any], effects: Mapping[str, Any]) -> str | None:
    """The first thing among the effects that is not the definition's; None if all is well."""
    inputs = {str(place.dataset) for place in work.inputs.values()}
    tables = [place for _, place in work.outputs.values() if not in_files(place.table)]  # files are not from afar
    outputs = {str(place.dataset): str(place.generation) for place in tables}
    if effects["definition"] != str(work.id) or effects["build"] != event.get("build"):
        return "in the name of another definition or version"
    own = {str(work.id), str(work.memory)}
    checks = (
        ("the state of definition", [of for of, _, _ in effects["states"] if of not in own]),
        ("inputs of dataset", [of for of, _, _ in effects["inputs"] if of not in inputs]),
        ("lineage of dataset", [of for of in effects["lineage"] if of not in outputs]),
        ("lineage from dataset", [of for e in effects["lineage"].values() for _, of, _ in e if of not in inputs]),
        ("the dataset", [e["dataset"] for e in effects["updates"] if outputs.get(e["dataset"]) != e["generation"]]),
    )  # fmt: skip
    return next((f"{what} {found[0]}" for what, found in checks if found), None) or _other_partition(
        work, event, effects["updates"]
    )


def _other_partition(work: Work, event: Mapping[str, Any], updates: Sequence[Mapping[str, Any]]) -> str | None:
    """A task of one slice updates that slice; what has no partitions is updated as a whole."""
    own = work.slice_of(event)
    outputs = {str(place.dataset): output for output, place in work.outputs.values()}
    for update in updates:
        divided = outputs[update["dataset"]].partition_by is not None
        keys = {each["key"] for each in update["partitions"]}
        if work.mode == "slice":
            strange = set[str]() if own is None else keys - {own}
        else:
            strange = set[str]() if divided else keys - {""}
        strange |= set[str]() if divided else set(update["changed"] or ()) - keys
        if strange:
            return f"the partition {min(strange)!r:.80} of the dataset {update['dataset']}"
    return None
