"""What a task of a definition is to do: the definition, and the generations it reads and makes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.catalog.dags.model import JobSpec, Output
from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.queries.dataset_sql import PhysicalTable
from aaiclick.catalog.running.parquet import File
from aaiclick.catalog.running.storage import Layout, Mode
from aaiclick.store import catalog_runs

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


@dataclass(frozen=True)
class Place:
    """A generation of a dataset under the name that the definition has for it; without `layout` it has no rows yet."""

    name: str
    dataset: UUID
    generation: UUID
    table: str
    layout: Layout | None
    updated_at: datetime | None
    files: tuple[File, ...] = ()
    """Those of a generation that is kept in files; `table` is their prefix."""

    def physical(self, partition: str | None = None) -> PhysicalTable:
        assert self.layout is not None  # noqa: S101
        return self.layout.physical(self.table, partition, self.files)


@dataclass(frozen=True)
class Work:
    """One definition."""

    id: UUID
    org_id: UUID
    dag_name: str
    name: str
    config_hash: str
    spec: JobSpec
    memory: UUID
    """The definition under which states are kept: the first one that made the same."""
    inputs: dict[str, Place] = field(default_factory=dict[str, Place])
    outputs: dict[str, tuple[Output, Place]] = field(default_factory=dict[str, tuple[Output, Place]])

    @property
    def mode(self) -> Mode:
        if self.spec.update_strategy == "append":
            return "append"
        return "slice" if self.spec.execution_strategy == "PerPartition" else "replace"

    def slice_of(self, event: Mapping[str, Any]) -> str | None:
        """The slice that a task of this event is about; None if it is about all there are."""
        if self.spec.execution_strategy != "PerPartition":
            return ""
        partitioned = [each for each in self.inputs.values() if each.layout and each.layout.partition_by]
        if not partitioned:
            return ""
        wanted, caused = event.get("partition"), self.input_of(str(event.get("dataset")))
        return str(wanted) if wanted and caused in partitioned else None

    def input_of(self, dataset: str) -> Place | None:
        return next((each for each in self.inputs.values() if str(each.dataset) == dataset), None)


async def find_work(connection: Connection, definition_id: UUID) -> Work:
    definition, datasets = await catalog_runs.find_work(connection, definition_id)
    if definition is None:
        raise no_definition(definition_id)
    return make_work(definition, datasets)


def no_definition(definition_id: UUID) -> DatasetError:
    return DatasetError(f"There is no definition {definition_id}.", remedy="Its DAG was removed.")


def make_work(definition: asyncpg.Record | Mapping[str, Any], datasets: Sequence[Any]) -> Work:
    """A definition out of the rows that are known of it."""
    spec = JobSpec.model_validate(json.loads(definition["spec"]))
    names = [each.output or str(each.dataset) for each in spec.inputs]
    found = {(row["role"], int(row["nth"]) - 1): row for row in datasets}
    missing = [name for index, name in enumerate(names) if ("input", index) not in found]
    if missing:
        raise DatasetError(
            f"The dataset {missing[0]!r} is no longer published.", remedy="Deploy the DAG that publishes it."
        )
    return Work(
        id=definition["id"],
        org_id=definition["org_id"],
        dag_name=definition["dag_name"],
        name=definition["name"],
        config_hash=definition["config_hash"],
        spec=spec,
        memory=definition["memory"],
        inputs={name: _place(name, found["input", index]) for index, name in enumerate(names)},
        outputs={
            output.name: (output, _place(output.name, found["output", index]))
            for index, output in enumerate(spec.outputs)
        },
    )


def _place(name: str, row: Any) -> Place:
    columns: Mapping[str, Any] | None = row["columns"] and json.loads(row["columns"])
    layout = None if columns is None else Layout.from_json(columns)
    return Place(
        name, row["dataset"], row["generation"], row["storage_location"], layout, row["updated_at"], files_of(row)
    )


def files_of(row: Any) -> tuple[File, ...]:
    """The files that the registry says are a generation."""
    return tuple(File.from_json(each) for each in json.loads(row["files"]))
