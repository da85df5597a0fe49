"""Rows of an output refer to a temporary table for as long as they are used."""

from __future__ import annotations

import gc

import pytest

from aaiclick.catalog.running.run import OperatorRun
from aaiclick.data import DataContext, create_object_from_value


@pytest.mark.parametrize("kind", ["values", "object", "expression"])
async def test_rows_keep_their_table_until_they_are_dropped(aaiclick_env, kind):
    run = object.__new__(OperatorRun)  # what `rows` returns depends on the value alone
    async with DataContext() as context:
        values = [{"n": 1}, {"n": 2}]
        made = None if kind == "values" else await create_object_from_value({"n": [1, 2]})
        rows = await run.rows(values if made is None else made + 1 if kind == "expression" else made)
        assert rows is not None
        del made
        gc.collect()
        await context.lifecycle.share([])  # returns after the releases before it
        counted = await context.client.read_text(f"SELECT count() AS n FROM ({rows.select})")
        assert counted.to_pylist() == [{"n": 2}]
