"""`range_aggregator` and `range_splitter` in a task.

Inputs have the columns `start` and `end` (ranges, both ends included), or one column of positions; outputs have `start`
and `end`.
"""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, cast

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.operators.built_in import RangeAggregatorConfig, RangeSplitterConfig
from aaiclick.catalog.operators.ranges import Aggregation, Range, absorb, split, take_partial, take_whole
from aaiclick.catalog.running.run import OperatorRun
from aaiclick.data.bounded_reads import ReadLimits, read_bounded
from aaiclick.data.types import quote_name

MAX_PIECES = 1_000_000
MAX_ARRIVED = 2_000_000
ARRIVED = ReadLimits(rows=MAX_ARRIVED + 1, bytes=64 << 20, values=2 * MAX_ARRIVED + 2)


async def run_aggregator(run: OperatorRun) -> Mapping[str, Any]:
    """Whole ranges that are complete now, each passed on once; the cursor is remembered with the completion."""
    settings = cast("RangeAggregatorConfig", run.settings)
    state = Aggregation.from_json(await run.state(), settings.start)
    # What lies before the cursor was passed on; what lies beyond is absorbed again, which changes nothing.
    state = absorb(state, await _arrived(run, state.cursor))
    taken: list[Range] = []
    while True:
        some, state = take_whole(state, settings.size, settings.start)
        taken += some
        if not some or len(taken) >= MAX_PIECES:
            break
    if settings.flush_partial:
        some, state = take_partial(state)
        taken += some
    run.remember(state.to_json())
    (output,) = run.work.outputs
    return {output: _rows(taken)}


async def run_splitter(run: OperatorRun) -> Mapping[str, Any]:
    """Every range of the input, cut into pieces."""
    settings = cast("RangeSplitterConfig", run.settings)
    pieces: list[Range] = []
    for each in await _arrived(run, None):
        if len(pieces) + len(each) // settings.size > MAX_PIECES:
            raise OperatorError(
                f"The job {run.work.name!r} would make more than {MAX_PIECES:,} pieces.", remedy="Use a larger size."
            )
        pieces += split(each, settings.size, settings.start)
    (output,) = run.work.outputs
    return {output: _rows(dict.fromkeys(pieces))}


async def _arrived(run: OperatorRun, cursor: int | None) -> list[Range]:
    """The ranges of the input that reach the cursor."""
    if len(run.work.inputs) != 1:
        raise OperatorError(f"The job {run.work.name!r} must have one input.", remedy="Ranges come from one dataset.")
    (name,) = run.work.inputs
    table = run.table(name)
    columns = ("start", "end") if {"start", "end"} <= set(table.columns) else table.columns * 2
    if len(columns) != 2:
        raise OperatorError(
            f"The input {name!r} has neither the columns start and end, nor one column of positions.",
            remedy="Select them in a job before this one.",
        )
    first, last = (quote_name(column) for column in columns)
    where = "" if cursor is None else f" WHERE {last} >= {int(cursor)}"
    text = (
        f"SELECT toInt64({first}) AS a, toInt64({last}) AS b FROM ({table.select()}){where} "  # noqa: S608
        f"ORDER BY a, b LIMIT {MAX_ARRIVED + 1}"
    )
    found = await read_bounded(run.data.client, text, None, {}, ARRIVED, run.data.query_id())
    if found.num_rows > MAX_ARRIVED:
        raise OperatorError(
            f"The input {name!r} has more than {MAX_ARRIVED:,} ranges.", remedy="Merge them in a job before this one."
        )
    return await asyncio.to_thread(_ranges, found)


def _ranges(table: Any) -> list[Range]:
    starts, ends = (cast("list[int]", column.to_pylist()) for column in table.columns)
    return [Range(start, end) for start, end in zip(starts, ends, strict=True)]


def _rows(ranges: Iterable[Range]) -> list[dict[str, int]]:
    return [{"start": each.start, "end": each.end} for each in ranges]
