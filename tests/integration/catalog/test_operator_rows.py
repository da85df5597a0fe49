"""Rows of an output refer to a temporary table for as long as they are used."""

from __future__ import annotations

import gc

import pytest

from aaiclick.catalog.execution.operator_run import OperatorRun
from aaiclick.data import DataContext, create_object_from_value


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
