"""Options of `@dataset` are the keys of definitions and outputs of DAG files."""

from __future__ import annotations

import pytest

from aaiclick.catalog.dags.model import DefinitionSpec, Output
from aaiclick.catalog.python_dags import (
    OUTPUT_KEYS,
    OWN_KEYS,
    DatasetKeywords,
    build_dag,
    dataset,
    forget_datasets,
    list_datasets,
    sql_dataset,
)
from aaiclick.errors import SubmitError

DERIVED = {"name", "activation", "operator", "config", "outputs"}
"""Keys of a definition that follow from the function."""


@pytest.fixture(autouse=True)
def _no_datasets():
    forget_datasets(__name__)


def test_options_are_the_keys_of_definitions_and_outputs() -> None:
    keys = (set(DefinitionSpec.model_fields) - DERIVED) | (set(Output.model_fields) - {"name"})
    assert set(DatasetKeywords.__annotations__) == keys | {"publish"}
    assert set(OUTPUT_KEYS) == set(Output.model_fields) - {"name"}
    assert set(OWN_KEYS) <= set(DatasetKeywords.__annotations__)


def test_inputs_are_parameters_and_datasets_of_other_dags() -> None:
    @dataset(source="@daily", unique_key=("id",), update_strategy="append")
    def raw() -> list[int]:
        return []

    @dataset(inputs={"people": "customers"}, publish="orders_of_customers", description="Orders")
    def orders(raw: object, people: object, least: int = 3) -> None: ...

    sql_dataset("n", "SELECT count() AS n FROM orders", inputs=["orders"], publish=True)
    dag = build_dag(__name__, "All orders")
    assert (dag["name"], dag["description"]) == ("test_python_dags", "All orders")
    raw_definition, orders_definition, n_definition = dag["jobs"]
    assert raw_definition["source"] == {"kind": "cron", "schedule": "@daily"}
    assert raw_definition["unique_key"] == ["id"]
    assert orders_definition["inputs"] == ["raw", {"dataset": "customers"}]
    assert orders_definition["config"]["arguments"] == {"people": {"input": "customers"}}
    assert orders_definition["outputs"] == [{"name": "orders", "description": "Orders"}]
    assert n_definition["config"] == {"query": "SELECT count() AS n FROM orders"}
    assert dag["publish"] == [{"output": "orders", "name": "orders_of_customers"}, "n"]


def test_version_changes_with_the_code_but_not_with_comments() -> None:
    def declare(*, factor: int) -> object:
        if factor == 1:

            @dataset(source="manual")
            def prices() -> list[int]:
                return [1]
        else:

            @dataset(source="manual", max_attempts=2)
            def prices() -> list[int]:
                # the same code
                return [1]

        [node] = list_datasets(__name__)
        return node.config["version"]

    first, second = declare(factor=1), declare(factor=2)
    assert first == second

    @dataset(source="manual")
    def prices() -> list[int]:
        return [2]

    [node] = list_datasets(__name__)
    assert node.config["version"] != first


def test_unknown_option_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(SubmitError, match="no option 'partitionby'"):
        dataset(partitionby="day")
    with pytest.raises(SubmitError, match="sql_dataset has no option"):
        sql_dataset("n", "SELECT 1 AS n", schedule="@daily")
