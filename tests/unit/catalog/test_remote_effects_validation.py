"""Effects of remote tasks are limited to their own definition."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from aaiclick.catalog.dags.model import DefinitionSpec, Output
from aaiclick.catalog.execution.dataset_tables import DatasetLayout
from aaiclick.catalog.execution.definition_context import DatasetLocation, DefinitionContext
from aaiclick.catalog.execution.remote_effects_validation import find_foreign_effect

ME, MEMORY, ORG, INPUT, MADE, FILES, GENERATION = (uuid4() for _ in range(7))
SPEC = DefinitionSpec(name="sums", activation="reactive", operator="sql")
WORK = DefinitionContext(
    ME, ORG, "shop", "sums", "hash", SPEC, MEMORY,
    {"raw": DatasetLocation("raw", INPUT, uuid4(), "dataset_1", None, None)},
    {
        "daily": (Output(name="daily"), DatasetLocation("daily", MADE, GENERATION, "dataset_2", None, None)),
        "lake": (Output(name="lake"), DatasetLocation("lake", FILES, GENERATION, "s3://lake/1/", None, None)),
    },
)  # fmt: skip


def update(dataset: object, generation: object = GENERATION, key: str = "", changed: tuple[str, ...] | None = ("",)):
    return {
        "dataset": str(dataset), "generation": str(generation), "partitions": [{"key": key}], "changed": changed,
    }  # fmt: skip


GOOD = {
    "definition": str(ME), "build": None, "states": [(str(MEMORY), "k", {}), (str(ME), "k", {})],
    "inputs": [(str(INPUT), "", "2026-01-01")], "lineage": {str(GENERATION): [("a", str(INPUT), "b")]},
    "updates": [update(MADE)],
}  # fmt: skip
STRANGE = str(uuid4())


def test_own_effects_are_accepted() -> None:
    assert find_foreign_effect(WORK, {}, GOOD) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"definition": STRANGE}, "another definition"),
        ({"build": STRANGE}, "another definition or version"),
        ({"states": [(STRANGE, "k", {})]}, "the state of definition"),
        ({"inputs": [(str(MADE), "", "2026-01-01")]}, "inputs of dataset"),
        ({"lineage": {STRANGE: []}}, "lineage of generation"),
        ({"lineage": {str(MADE): []}}, "lineage of generation"),
        ({"lineage": {str(GENERATION): [("a", STRANGE, "b")]}}, "lineage from dataset"),
        ({"updates": [update(INPUT)]}, "the dataset"),
        ({"updates": [update(MADE, STRANGE)]}, "the dataset"),
        ({"updates": [update(FILES)]}, "the dataset"),
        ({"updates": [update(MADE, key="de", changed=None)]}, "the partition 'de'"),
        ({"updates": [update(MADE, changed=("", "de"))]}, "the partition 'de'"),
    ],
)
def test_foreign_effect_is_reported(change, message) -> None:
    assert message in str(find_foreign_effect(WORK, {}, GOOD | change))


DIVIDED = DatasetLayout((("country", "String"),), "append", (), "country")
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
    """A task without a slice updates all of them."""
    effect = find_foreign_effect(SLICES, event, GOOD | {"updates": [update(MADE, key=key, changed=(key,))]})
    assert (effect is None) is taken, effect
