"""What a task from afar may leave behind: what its definition reads and makes, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from aaiclick.catalog.dags.model import JobSpec, Output
from aaiclick.catalog.running.effects import foreign
from aaiclick.catalog.running.storage import Layout
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


def update(dataset: object, generation: object = GENERATION, key: str = "", changed: tuple[str, ...] | None = ("",)):
    return {
        "dataset": str(dataset), "generation": str(generation), "partitions": [{"key": key}], "changed": changed,
    }  # fmt: skip


GOOD = {
    "definition": str(ME), "build": None, "states": [(str(MEMORY), "k", {}), (str(ME), "k", {})],
    "inputs": [(str(INPUT), "", "2026-01-01")], "lineage": {str(MADE): [("a", str(INPUT), "b")]},
    "updates": [update(MADE)],
}  # fmt: skip
STRANGE = str(uuid4())


def test_its_own_business_is_taken() -> None:
    assert foreign(WORK, {}, GOOD) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"definition": STRANGE}, "another definition"),
        ({"build": STRANGE}, "another definition or version"),
        ({"states": [(STRANGE, "k", {})]}, "the state of definition"),
        ({"inputs": [(str(MADE), "", "2026-01-01")]}, "inputs of dataset"),
        ({"lineage": {str(INPUT): []}}, "lineage of dataset"),
        ({"lineage": {str(MADE): [("a", STRANGE, "b")]}}, "lineage from dataset"),
        ({"updates": [update(INPUT)]}, "the dataset"),
        ({"updates": [update(MADE, STRANGE)]}, "the dataset"),
        ({"updates": [update(FILES)]}, "the dataset"),
        ({"updates": [update(MADE, key="de", changed=None)]}, "the partition 'de'"),
        ({"updates": [update(MADE, changed=("", "de"))]}, "the partition 'de'"),
    ],
)
def test_anything_else_is_named(change, words) -> None:
    assert words in str(foreign(WORK, {}, GOOD | change))


DIVIDED = Layout((("country", "String"),), "append", (), "country")
SLICES = replace(
    WORK,
    spec=SPEC.model_copy(update={"execution_strategy": "PerPartition"}),
    inputs={"raw": replace(WORK.inputs["raw"], layout=DIVIDED)},
)
OF_ONE = {"dataset": str(INPUT), "partition": "de"}


@pytest.mark.parametrize(
    ("event", "key", "taken"),
    [
        (OF_ONE, "de", True),
        (OF_ONE, "fr", False),
        (OF_ONE, "", False),
        ({}, "fr", True),
        ({"dataset": str(INPUT)}, "fr", True),
        (OF_ONE | {"dataset": STRANGE}, "fr", True),
    ],
)
def test_a_task_of_one_slice_updates_that_slice(event, key, taken) -> None:
    """One that nobody started for a slice makes all of them."""
    found = foreign(SLICES, event, GOOD | {"updates": [update(MADE, key=key, changed=(key,))]})
    assert (found is None) is taken, found
