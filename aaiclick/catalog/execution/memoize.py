"""Memoization: whether the outputs of a definition were already computed from the same settings and inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from aaiclick.catalog.execution.definition_context import DefinitionContext
from aaiclick.store.catalog.definition_runs import Partition

MEMOIZED = frozenset({"sql", "python"})
"""Operators with rows that depend only on inputs and settings."""


class GenerationReader(Protocol):
    """Reads recorded partitions and digests of generations."""

    async def list_partitions(self, generation: UUID, keys: Sequence[str] | None = None) -> dict[str, Partition]: ...

    async def input_digest(self, generation: UUID) -> str: ...


def is_memoized(definition: DefinitionContext) -> bool:
    return definition.spec.operator in MEMOIZED and bool(definition.inputs) and bool(definition.outputs)


async def compute_inputs_hash(
    reader: GenerationReader, definition: DefinitionContext, driver: str | None, partition: str
) -> str | None:
    """Return a hash of the settings and the content of the inputs; None if the operator depends on more."""
    if not is_memoized(definition):
        return None
    parts: list[object] = [definition.config_hash, partition]
    for name, (output, _) in definition.outputs.items():
        if output.tests:  # a changed test applies to the next update, also from the same inputs
            parts.append([name, [test.model_dump(mode="json", exclude_defaults=True) for test in output.tests]])
    for name, location in sorted(definition.inputs.items()):
        content = None
        if name == driver and partition:
            row = (await reader.list_partitions(location.generation, [partition])).get(partition)
            content = row and (row.digest or str(row.recorded_ticket))
        content = content or await reader.input_digest(location.generation)
        parts.append([name, str(location.generation), content])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


async def find_reusable_tasks(
    reader: GenerationReader, definition: DefinitionContext, partition: str, inputs_hash: str
) -> set[int] | None:
    """Return the tasks that computed this partition of all outputs from the same inputs; None if one differs."""
    task_ids: set[int] = set()
    for _, location in definition.outputs.values():
        row = (await reader.list_partitions(location.generation, [partition])).get(partition)
        if row is None or row.inputs_hash != inputs_hash or row.recorded_ticket != row.ticket:
            return None
        if row.task_id is not None:
            task_ids.add(row.task_id)
    return task_ids
