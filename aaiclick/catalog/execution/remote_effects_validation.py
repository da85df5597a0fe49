"""Checks that the effects reported by a remote task belong to its own definition.

A worker without a database connection reports what its completion writes. Only the inputs, outputs and states of its
own definition are allowed, not other datasets, other definitions or other versions that are being filled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.execution.dataset_tables import DatasetLayout
from aaiclick.catalog.execution.definition_context import DefinitionContext, load_definition
from aaiclick.catalog.execution.parquet_storage import is_file_based
from aaiclick.store.catalog import definition_runs

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection


async def check_effects(connection: Connection, task: asyncpg.Record | None, effects: Mapping[str, object]) -> str:
    """Return the effects as JSON for the completion; raises DatasetError for effects of another definition."""
    if task is None or task["definition_id"] is None:
        raise DatasetError("Only tasks of a DAG can write to datasets.")
    definition = await load_definition(connection, task["definition_id"])
    event: Mapping[str, object] = json.loads(task["kwargs"]).get("event") or {}
    foreign_effect = (
        find_foreign_effect(definition, event, effects)
        or await _find_unissued_ticket(connection, effects)
        or _find_invalid_columns(effects)
    )
    if foreign_effect is not None:
        raise DatasetError(
            f"The task {task['id']} of {definition.dag_name}.{definition.name} may not write {foreign_effect}."
        )
    return json.dumps(effects)


async def check_emission(connection: Connection, task: asyncpg.Record | None, effects: Mapping[str, object]) -> str:
    """Like check_effects, for updates that a source emits while it runs."""
    checked = await check_effects(connection, task, effects)
    assert task is not None  # noqa: S101  (it was checked)
    definition = await load_definition(connection, task["definition_id"])
    if definition.spec.activation != "source":
        raise DatasetError(
            f"{definition.dag_name}.{definition.name} is not a source: only sources emit events while they run."
        )
    return checked


async def _find_unissued_ticket(connection: Connection, effects: Mapping[str, Any]) -> str | None:
    """Return a ticket that was never issued: it would supersede all later updates."""
    highest = max((int(update["ticket"]) for update in effects["updates"]), default=0)
    if highest and highest > await definition_runs.get_last_ticket(connection):
        return f"with the ticket {highest}, which was never taken"
    return None


def _find_invalid_columns(effects: Mapping[str, Any]) -> str | None:
    """Return an update with invalid columns: it would break every later reader of the generation."""
    for update in effects["updates"]:
        try:
            DatasetLayout.from_json(update["columns"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return f"columns of the dataset {update['dataset']} that cannot be read"
    return None


def find_foreign_effect(
    definition: DefinitionContext, event: Mapping[str, Any], effects: Mapping[str, Any]
) -> str | None:
    """Return the first effect that does not belong to the definition; None if there is none."""
    inputs = {str(location.dataset) for location in definition.inputs.values()}
    # remote workers write no files
    locations = [location for location in definition.output_locations if not is_file_based(location.table)]
    outputs = {str(location.dataset): str(location.generation) for location in locations}
    if effects["definition"] != str(definition.id) or effects["build"] != event.get("build"):
        return "in the name of another definition or version"
    sources = effects["lineage"].values()
    own_ids = {str(definition.id), str(definition.memory)}
    checks = (
        ("the state of definition", [id_ for id_, _, _ in effects["states"] if id_ not in own_ids]),
        ("inputs of dataset", [id_ for id_, _, _ in effects["inputs"] if id_ not in inputs]),
        ("lineage of generation", [id_ for id_ in effects["lineage"] if id_ not in outputs.values()]),
        ("lineage from dataset", [id_ for edges in sources for _, id_, _ in edges if id_ not in inputs]),
        ("the dataset", [u["dataset"] for u in effects["updates"] if outputs.get(u["dataset"]) != u["generation"]]),
    )  # fmt: skip
    return next((f"{label} {ids[0]}" for label, ids in checks if ids), None) or _find_foreign_partition(
        definition, event, effects["updates"]
    )


def _find_foreign_partition(
    definition: DefinitionContext, event: Mapping[str, Any], updates: Sequence[Mapping[str, Any]]
) -> str | None:
    """Return a partition that the task may not update: of another slice, or of an unpartitioned output."""
    own_slice = definition.slice_of(event)
    written = [*definition.outputs.values(), *definition.rejected.values()]
    outputs = {str(location.dataset): output for output, location in written}
    for update in updates:
        is_partitioned = outputs[update["dataset"]].partition_by is not None
        keys = {partition["key"] for partition in update["partitions"]}
        if definition.mode == "slice":
            foreign_keys = set[str]() if own_slice is None else keys - {own_slice}
        else:
            foreign_keys = set[str]() if is_partitioned else keys - {""}
        foreign_keys |= set[str]() if is_partitioned else set(update["changed"] or ()) - keys
        if foreign_keys:
            return f"the partition {min(foreign_keys)!r:.80} of the dataset {update['dataset']}"
    return None
