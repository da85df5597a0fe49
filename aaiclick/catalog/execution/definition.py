"""The context of a definition: its specification, and the generations that it reads and writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.catalog.dags.model import DefinitionSpec, Output
from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.execution.parquet_storage import DataFile
from aaiclick.catalog.execution.table_storage import DatasetLayout, Mode
from aaiclick.catalog.queries.table_rewrite import PhysicalTable
from aaiclick.store.catalog import runs

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.connections import Connection


@dataclass(frozen=True)
class DatasetLocation:
    """A generation of a dataset under its name in the definition; `layout` is None if it has no rows yet."""

    name: str
    dataset: UUID
    generation: UUID
    table: str
    layout: DatasetLayout | None
    updated_at: datetime | None
    files: tuple[DataFile, ...] = ()
    """Files of a file-based generation; `table` is their prefix."""

    def physical(self, partition: str | None = None) -> PhysicalTable:
        assert self.layout is not None  # noqa: S101
        return self.layout.physical(self.table, partition, self.files)


@dataclass(frozen=True)
class DefinitionContext:
    """A definition with the locations of its inputs and outputs."""

    id: UUID
    org_id: UUID
    dag_name: str
    name: str
    config_hash: str
    spec: DefinitionSpec
    memory: UUID
    """The definition that owns the operator state: the first one with the same configuration."""
    inputs: dict[str, DatasetLocation] = field(default_factory=dict[str, DatasetLocation])
    outputs: dict[str, tuple[Output, DatasetLocation]] = field(
        default_factory=dict[str, tuple[Output, DatasetLocation]]
    )

    @property
    def mode(self) -> Mode:
        if self.spec.update_strategy == "append":
            return "append"
        return "slice" if self.spec.execution_strategy == "PerPartition" else "replace"

    def slice_of(self, event: Mapping[str, object]) -> str | None:
        """Return the slice that a task of this event processes; None if it processes all of them."""
        if self.spec.execution_strategy != "PerPartition":
            return ""
        partitioned = [
            location for location in self.inputs.values() if location.layout and location.layout.partition_by
        ]
        if not partitioned:
            return ""
        partition, trigger = event.get("partition"), self.input_of(str(event.get("dataset")))
        return str(partition) if partition and trigger in partitioned else None

    def input_of(self, dataset: str) -> DatasetLocation | None:
        return next((location for location in self.inputs.values() if str(location.dataset) == dataset), None)


async def load_definition(connection: Connection, definition_id: UUID) -> DefinitionContext:
    definition, datasets = await runs.load_definition(connection, definition_id)
    if definition is None:
        raise definition_not_found(definition_id)
    return build_definition_context(definition, datasets)


def definition_not_found(definition_id: UUID) -> DatasetError:
    return DatasetError(f"There is no definition {definition_id}.", remedy="Its DAG was removed.")


def build_definition_context(
    definition: asyncpg.Record | Mapping[str, Any], datasets: Sequence[Any]
) -> DefinitionContext:
    """Build the context from the rows of the definition and its datasets."""
    spec = DefinitionSpec.model_validate(json.loads(definition["spec"]))
    names = [input_.output or str(input_.dataset) for input_ in spec.inputs]
    rows = {(row["role"], int(row["nth"]) - 1): row for row in datasets}
    missing = [name for index, name in enumerate(names) if ("input", index) not in rows]
    if missing:
        raise DatasetError(
            f"The dataset {missing[0]!r} is no longer published.", remedy="Deploy the DAG that publishes it."
        )
    return DefinitionContext(
        id=definition["id"],
        org_id=definition["org_id"],
        dag_name=definition["dag_name"],
        name=definition["name"],
        config_hash=definition["config_hash"],
        spec=spec,
        memory=definition["memory"],
        inputs={name: _build_location(name, rows["input", index]) for index, name in enumerate(names)},
        outputs={
            output.name: (output, _build_location(output.name, rows["output", index]))
            for index, output in enumerate(spec.outputs)
        },
    )


def _build_location(name: str, row: Any) -> DatasetLocation:
    columns: Mapping[str, Any] | None = row["columns"] and json.loads(row["columns"])
    layout = None if columns is None else DatasetLayout.from_json(columns)
    return DatasetLocation(
        name,
        row["dataset"],
        row["generation"],
        row["storage_location"],
        layout,
        row["updated_at"],
        parse_files(row["files"]),
    )


def parse_files(files: str) -> tuple[DataFile, ...]:
    """Return the registered files of a generation."""
    return tuple(DataFile.from_json(file) for file in json.loads(files))
