"""Whether what a definition would make is there already: made of the same settings and the same content of inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from aaiclick.catalog.running.work import Work

MEMOIZED = frozenset({"sql", "python"})
"""Operators whose rows depend on inputs and settings alone."""


class Books(Protocol):
    """What is known of generations."""

    async def partitions(self, generation: UUID, keys: Sequence[str] | None = None) -> dict[str, Mapping[str, Any]]: ...

    async def input_digest(self, generation: UUID) -> str: ...


def is_memoized(work: Work) -> bool:
    return work.spec.operator in MEMOIZED and bool(work.inputs) and bool(work.outputs)


async def made_of(books: Books, work: Work, driver: str | None, partition: str) -> str | None:
    """A hash of the settings and of what the inputs hold; None if the operator looks at more than these."""
    if not is_memoized(work):
        return None
    parts: list[Any] = [work.config_hash, partition]
    for name, place in sorted(work.inputs.items()):
        content = None
        if name == driver and partition:
            row = (await books.partitions(place.generation, [partition])).get(partition)
            content = row and (row["digest"] or str(row["recorded_ticket"]))
        content = content or await books.input_digest(place.generation)
        parts.append([name, str(place.generation), content])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


async def made_by(books: Books, work: Work, partition: str, made_of: str) -> set[int] | None:
    """The tasks that made this partition of all outputs of the same; None if one is of something else."""
    by: set[int] = set()
    for _, place in work.outputs.values():
        row = (await books.partitions(place.generation, [partition])).get(partition)
        if row is None or row["inputs_hash"] != made_of or row["recorded_ticket"] != row["ticket"]:
            return None
        by.add(row["task_id"])
    return by
