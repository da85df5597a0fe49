"""The context of a definition: its specification, and the generations that it reads and writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.catalog.dags.data_test_datasets import find_test_references, rejected_output
from aaiclick.catalog.dags.model import DefinitionSpec, Output
from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.execution.dataset_tables import DatasetLayout, Mode
from aaiclick.catalog.execution.parquet_storage import DataFile
from aaiclick.catalog.queries.table_rewrite import PhysicalTable
from aaiclick.store.catalog import definition_runs

if TYPE_CHECKING:
    from aaiclick.orchestration.gateway import AttemptGateway
    from aaiclick.store.postgres_connections import Connection


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
    publishes: int = 0
    recent_rows: tuple[int, ...] = ()
    """Numbers of rows of the last updates with data tests, newest first."""

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
    rejected: dict[str, tuple[Output, DatasetLocation]] = field(
        default_factory=dict[str, tuple[Output, DatasetLocation]]
    )
    """Datasets of the rows that data tests reject, by the name of the output."""
    references: dict[str, DatasetLocation] = field(default_factory=dict[str, DatasetLocation])
    """Datasets that data tests compare rows with."""

    @property
    def output_locations(self) -> list[DatasetLocation]:
        """Everything that the definition writes."""
        return [location for _, location in (*self.outputs.values(), *self.rejected.values())]

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
    return build_definition_context(definition_id, await definition_runs.load_definition(connection, definition_id))


async def load_definition_of_task(gateway: AttemptGateway, definition_id: UUID) -> DefinitionContext:
    """Load the definition of a running task."""
    return build_definition_context(definition_id, await gateway.load_definition(definition_id))


def build_definition_context(definition_id: UUID, definition: definition_runs.Definition | None) -> DefinitionContext:
    """Build the context of a definition; raises DatasetError if there is none."""
    if definition is None:
        raise DatasetError(f"There is no definition {definition_id}.", remedy="Its DAG was removed.")
    spec = DefinitionSpec.model_validate_json(definition.spec)
    names = [input_.output or str(input_.dataset) for input_ in spec.inputs]
    datasets = {(dataset.role, dataset.nth - 1): dataset for dataset in definition.datasets}
    missing = [name for index, name in enumerate(names) if ("input", index) not in datasets]
    if missing:
        raise DatasetError(
            f"The dataset {missing[0]!r} is no longer published.", remedy="Deploy the DAG that publishes it."
        )
    return DefinitionContext(
        id=definition.id,
        org_id=definition.org_id,
        dag_name=definition.dag_name,
        name=definition.name,
        config_hash=definition.config_hash,
        spec=spec,
        memory=definition.memory,
        inputs={name: _build_location(name, datasets["input", index]) for index, name in enumerate(names)},
        outputs={
            output.name: (output, _build_location(output.name, datasets["output", index]))
            for index, output in enumerate(spec.outputs)
        },
        rejected={
            output.name: (rejected_output(output), _build_location(output.name, datasets["rejected", index]))
            for index, output in enumerate(spec.outputs)
            if output.has_quarantine
        },
        references={
            name: _build_location(name, datasets["reference", index])
            for index, name in enumerate(find_test_references(spec))
            if ("reference", index) in datasets
        },
    )


def _build_location(name: str, row: definition_runs.DefinitionDataset) -> DatasetLocation:
    layout = None if not row.columns else DatasetLayout.from_json(json.loads(row.columns))
    return DatasetLocation(
        name, row.dataset, row.generation, row.storage_location, layout, row.updated_at, parse_files(row.files),
        row.publishes, tuple(row.recent_rows),
    )  # fmt: skip


def parse_files(files: str) -> tuple[DataFile, ...]:
    """Return the registered files of a generation from their JSON text."""
    return tuple(DataFile.from_json(file) for file in json.loads(files))
