"""Rows of an output refer to a temporary table for as long as they are used."""

from __future__ import annotations

import gc

import pytest

from aaiclick.catalog.execution import dataset_tables
from aaiclick.catalog.execution.operator_run import OperatorRun
from aaiclick.data import DataContext, create_object_from_value
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient


@pytest.mark.parametrize("value_kind", ["values", "object", "expression"])
async def test_rows_keep_their_table_until_they_are_dropped(aaiclick_env, value_kind):
    run = object.__new__(OperatorRun)  # `rows` depends only on the value
    async with DataContext() as context:
        values = [{"n": 1}, {"n": 2}]
        object_ = None if value_kind == "values" else await create_object_from_value({"n": [1, 2]})
        rows = await run.rows(values if object_ is None else object_ + 1 if value_kind == "expression" else object_)
        assert rows is not None
        del object_
        gc.collect()
        await context.lifecycle.share([])  # returns after the releases before it
        counted = await context.client.read_text(f"SELECT count() AS n FROM ({rows.select})")
        assert counted.to_pylist() == [{"n": 2}]


async def test_every_statement_of_a_publication_has_its_own_query_id(aaiclick_env, monkeypatch):
    ids: list[str] = []
    run = ClickHouseClient.run

    async def run_and_record(client, text, parameters=None, settings=None, query_id=""):
        ids.append(query_id)
        await run(client, text, parameters, settings, query_id)

    async with DataContext() as context:
        layout = dataset_tables.DatasetLayout((("n", "Int64"),), "replace")
        async with dataset_tables.stage_rows(context, "SELECT 1 AS n", layout, (), 1) as staged:
            with monkeypatch.context() as recording:
                recording.setattr(ClickHouseClient, "run", run_and_record)
                await dataset_tables.publish_staged(context.client, "target", staged, query_id="of-a-task")
    assert len(set(ids)) == len(ids) == 2
    assert all(query_id.startswith("of-a-task") for query_id in ids)
