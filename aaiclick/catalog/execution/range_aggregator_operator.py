"""Operators `range_aggregator` and `range_splitter`.

Inputs have the columns `start` and `end` (ranges, both ends included), or one column of positions; outputs have `start`
and `end`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, cast

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.execution.operator_run import OperatorRun
from aaiclick.catalog.operators.config import RangeAggregatorConfig, RangeSplitterConfig
from aaiclick.catalog.operators.integer_ranges import (
    Aggregation,
    Range,
    absorb_ranges,
    split_range,
    take_partial,
    take_whole,
)
from aaiclick.data.io.bounded_reads import ReadLimits, read_bounded
from aaiclick.data.types import quote_name

MAX_PIECES = 1_000_000
MAX_RANGES = 2_000_000
INPUT_LIMITS = ReadLimits(rows=MAX_RANGES + 1, bytes=64 << 20, values=2 * MAX_RANGES + 2)


async def run_aggregator(run: OperatorRun) -> Mapping[str, object]:
    """Emit the ranges that are complete now, each once; the cursor is stored with the completion."""
    settings = cast("RangeAggregatorConfig", run.settings)
    state = Aggregation.from_json(await run.state(), settings.start)
    # Positions before the cursor were emitted; absorbing the rest again is idempotent.
    state = absorb_ranges(state, await _read_ranges(run, state.cursor))
    taken: list[Range] = []
    while True:
        batch, state = take_whole(state, settings.size, settings.start)
        taken += batch
        if not batch or len(taken) >= MAX_PIECES:
            break
    if settings.flush_partial:
        batch, state = take_partial(state)
        taken += batch
    run.remember(state.to_json())
    (output,) = run.definition.outputs
    return {output: _to_rows(taken)}


async def run_splitter(run: OperatorRun) -> Mapping[str, object]:
    """Split every range of the input into pieces."""
    settings = cast("RangeSplitterConfig", run.settings)
    pieces: list[Range] = []
    for range_ in await _read_ranges(run, None):
        if len(pieces) + len(range_) // settings.size > MAX_PIECES:
            raise OperatorError(
                f"The definition {run.definition.name!r} would make more than {MAX_PIECES:,} pieces.",
                remedy="Use a larger size.",
            )
        pieces += split_range(range_, settings.size, settings.start)
    (output,) = run.definition.outputs
    return {output: _to_rows(dict.fromkeys(pieces))}


async def _read_ranges(run: OperatorRun, cursor: int | None) -> list[Range]:
    """Return the ranges of the input that reach the cursor."""
    if len(run.definition.inputs) != 1:
        raise OperatorError(
            f"The definition {run.definition.name!r} must have one input.", remedy="Ranges come from one dataset."
        )
    (name,) = run.definition.inputs
    table = run.table(name)
    columns = ("start", "end") if {"start", "end"} <= set(table.columns) else table.columns * 2
    if len(columns) != 2:
        raise OperatorError(
            f"The input {name!r} has neither the columns start and end, nor one column of positions.",
            remedy="Select them in a definition before this one.",
        )
    first, last = (quote_name(column) for column in columns)
    where = "" if cursor is None else f" WHERE {last} >= {int(cursor)}"
    text = (
        f"SELECT toInt64({first}) AS a, toInt64({last}) AS b FROM ({table.select()}){where} "  # noqa: S608
        f"ORDER BY a, b LIMIT {MAX_RANGES + 1}"
    )
    result = await read_bounded(run.data.client, text, None, {}, INPUT_LIMITS, run.data.query_id())
    if result.num_rows > MAX_RANGES:
        raise OperatorError(
            f"The input {name!r} has more than {MAX_RANGES:,} ranges.",
            remedy="Merge them in a definition before this one.",
        )
    return await asyncio.to_thread(_to_ranges, result)


def _to_ranges(table: Any) -> list[Range]:
    starts, ends = (cast("list[int]", column.to_pylist()) for column in table.columns)
    return [Range(start, end) for start, end in zip(starts, ends, strict=True)]


def _to_rows(ranges: Iterable[Range]) -> list[dict[str, int]]:
    return [{"start": range_.start, "end": range_.end} for range_ in ranges]
