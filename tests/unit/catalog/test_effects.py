"""What a task from afar may leave behind: what its definition reads and makes, and nothing else."""

from __future__ import annotations

from uuid import uuid4

import pytest

from aaiclick.catalog.dags.model import JobSpec, Output
from aaiclick.catalog.running.effects import foreign
from aaiclick.catalog.running.work import Place, Work

ME, MEMORY, ORG, INPUT, MADE, FILES, GENERATION = (uuid4() for _ in range(7))
SPEC = JobSpec(name="sums", activation="reactive", operator="sql")
WORK = Work(
    ME, ORG, "shop", "sums", "hash", SPEC, MEMORY,
    {"raw": Place("raw", INPUT, uuid4(), "dataset_1", None, None)},
    {
        "daily": (Output(name="daily"), Place("daily", MADE, GENERATION, "dataset_2", None, None)),
        "lake": (Output(name="lake"), Place("lake", FILES, GENERATION, "s3://lake/1/", None, None)),
    },
)  # fmt: skip
GOOD = {
    "definition": str(ME), "build": None, "states": [(str(MEMORY), "k", {}), (str(ME), "k", {})],
    "inputs": [(str(INPUT), "", "2026-01-01")], "lineage": {str(MADE): [("a", str(INPUT), "b")]},
    "updates": [{"dataset": str(MADE), "generation": str(GENERATION)}],
}  # fmt: skip
STRANGE = str(uuid4())


def test_its_own_business_is_taken() -> None:
    assert foreign(WORK, None, GOOD) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"definition": STRANGE}, "another definition"),
        ({"build": STRANGE}, "another definition or version"),
        ({"states": [(STRANGE, "k", {})]}, "the state of definition"),
        ({"inputs": [(str(MADE), "", "2026-01-01")]}, "inputs of dataset"),
        ({"lineage": {str(INPUT): []}}, "lineage of dataset"),
        ({"lineage": {str(MADE): [("a", STRANGE, "b")]}}, "lineage from dataset"),
        ({"updates": [{"dataset": str(INPUT), "generation": str(GENERATION)}]}, "the dataset"),
        ({"updates": [{"dataset": str(MADE), "generation": STRANGE}]}, "the dataset"),
        ({"updates": [{"dataset": str(FILES), "generation": str(GENERATION)}]}, "the dataset"),
    ],
)
def test_anything_else_is_named(change, words) -> None:
    assert words in str(foreign(WORK, None, GOOD | change))
