"""Tasks of the operators: `map_rows` creates one task per chunk and a task that collects their results.

    map_rows ─► chunk, chunk, chunk … (a group) ─► collect

`map_rows` counts the rows without reading them and returns `collect`, so that the handle has its result. A failed chunk
is retried alone. A chunk with several attempts may write its rows several times, each marked with its attempt;
`collect` keeps the rows of the attempt that PostgreSQL accepted (see `aaiclick.data.runtime.parallel_write`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from aaiclick.data import Object, View
from aaiclick.data.io.argument_conversion import read_object_as
from aaiclick.data.runtime.parallel_write import (
    Part,
    columns_from_json,
    columns_to_json,
    create_parallel_table,
    describe_value,
    seal_parts,
    source_of,
    write_part,
)
from aaiclick.operators.callback_signatures import chunk_parameters
from aaiclick.orchestration import Group, PermanentError, Task
from aaiclick.orchestration.task_context import JsonResult, TaskScope, current_scope
from aaiclick.store.engine.queries import TaskResult
from aaiclick.store.task_options import DEFAULT_OPTIONS, TaskKeywords

MODULE = __name__


# --- chunk creation -----------------------------------------------------------------------------------------------


async def map_rows(
    callback: str,
    inputs: Sequence[Object],
    chunk_rows: int,
    options: TaskKeywords,
    extra: Mapping[str, object],
    schema: Mapping[str, str] | None = None,
) -> Task:
    """Create a task for each chunk, and return the task that collects their rows."""
    target = await create_parallel_table()
    common = {"callback": callback, "extra": extra, "target": target, "schema": schema}
    return await _split_into_chunks("map", inputs, chunk_rows, options, common, target)


async def foreach_rows(
    callback: str,
    inputs: Sequence[Object],
    chunk_rows: int,
    options: TaskKeywords,
    extra: Mapping[str, object],
) -> Task:
    return await _split_into_chunks(
        "foreach", inputs, chunk_rows, options, {"callback": callback, "extra": extra}, None
    )


async def reduce_rows(
    callback: str,
    inputs: Sequence[Object],
    chunk_rows: int,
    options: TaskKeywords,
    extra: Mapping[str, object],
    before: int | None = None,
) -> Any:
    """One level of a tree reduction: reduce a single chunk here; map more chunks and reduce their results next."""
    (whole,) = inputs
    total = await whole.count()
    if total <= chunk_rows:
        return await _call_callback(callback, [whole], extra)
    if before is not None and total >= before:
        raise PermanentError(
            f"{callback} returned {total:,} rows for {before:,}: it does not reduce.",
            remedy="Return fewer rows than the input has, or use larger chunks.",
        )
    arguments = {
        "callback": callback, "inputs": [whole], "chunk_rows": chunk_rows, "options": options, "extra": extra,
    }  # fmt: skip
    level = Task(f"{MODULE}.map_rows", arguments, name=f"reduce {callback}")
    return Task(f"{MODULE}.reduce_rows", {**arguments, "inputs": [level], "before": total}, name=f"reduce {callback}")


async def _split_into_chunks(
    operator: str,
    inputs: Sequence[Object],
    chunk_rows: int,
    options: TaskKeywords,
    common: Mapping[str, object],
    target: Object | None,
) -> Task:
    views = [await _as_view(source) for source in inputs]
    lengths = [await view.count() for view in views]
    if len(set(lengths)) > 1:
        raise PermanentError(
            f"{operator} needs Objects of equal length, not {' and '.join(f'{length:,}' for length in lengths)} rows.",
            remedy="Join them on a column, or slice them to one length.",
        )
    callback, total = common["callback"], lengths[0]
    group = Group(f"{operator} {callback}")
    chunk_options = DEFAULT_OPTIONS.change(options)
    chunks = [
        Task(
            f"{MODULE}.chunk",
            {**common, "inputs": [view.slice(start, min(chunk_rows, total - start)) for view in views], "number": n,
             "start": start, "expected": min(chunk_rows, total - start)},
            group=group, options=chunk_options,
        )
        for n, start in enumerate(range(0, max(total, 1), chunk_rows))
    ]  # fmt: skip
    print(f"{operator} {callback}: {total:,} rows in {len(chunks):,} chunks of {chunk_rows:,}")  # noqa: T201  (the log)
    arguments = {"group_id": str(group.id), "target": target, "callback": callback}
    last_options = replace(chunk_options, timeout_seconds=None, concurrency_key=None)
    last = Task(f"{MODULE}.collect", arguments, name=f"collect {callback}", options=last_options)
    last.depends_on(group)
    return last


async def _as_view(source: Object) -> View:
    """Return a View without a condition; filtered rows are materialised first.

    Otherwise every chunk would have to search all preceding rows for its first matching row.
    """
    if isinstance(source, View):
        return source if source.where_condition is None else View(await source.materialize())
    return View(await source)


# --- one chunk ----------------------------------------------------------------------------------------------------


async def chunk(
    callback: str,
    inputs: Sequence[Object],
    extra: Mapping[str, object],
    number: int,
    start: int,
    expected: int,
    target: Object | None = None,
    schema: Mapping[str, str] | None = None,
) -> JsonResult:
    """Call the callback on one chunk and write the returned rows."""
    value = await _call_callback(callback, inputs, extra)
    record = JsonResult(chunk=number, start=start, rows=expected, out=0)
    if target is None:
        return record
    if value is None:
        raise PermanentError(f"{callback} returned None.", remedy="Return rows, or use foreach().")
    source = source_of(number, _task_scope().lease.attempt)
    record["out"] = await write_part(target, value, source, start, schema)
    if not record["out"]:
        record["empty"] = columns_to_json(*describe_value(value, schema))
    return record


async def _call_callback(callback: str, inputs: Sequence[Object], extra: Mapping[str, object]) -> Any:
    scope = _task_scope()
    assert scope.resolve is not None  # noqa: S101
    assert scope.call is not None  # noqa: S101
    function = scope.resolve(callback)
    parameters = chunk_parameters(function, len(inputs), extra)
    chunks = {name: await read_object_as(view, form) for (name, form), view in zip(parameters, inputs, strict=True)}
    return await scope.call(function, {**chunks, **extra})


def _task_scope() -> TaskScope:
    scope = current_scope()
    if scope is None:
        raise PermanentError("Operator tasks can run only inside a task.")
    return scope


# --- collection ---------------------------------------------------------------------------------------------------


async def collect(group_id: str, callback: str, target: Object | None = None) -> Object | None:
    """Return one Object with the rows that the accepted attempt of each chunk wrote."""
    started = time.monotonic()
    results = await _task_scope().gateway.group_results(int(group_id))
    records = [(task.attempt or 0, json.loads(task.result or "{}")) for task in results]
    parts = sorted(
        (Part(r["chunk"], attempt, r["start"], r["rows"], r["out"]) for attempt, r in records), key=lambda p: p.number
    )
    _print_throughput(callback, results, sum(part.expected for part in parts))
    if target is None:
        return None
    empty_columns = next((columns_from_json(r["empty"]) for _, r in records if "empty" in r), None)
    result = await seal_parts(target, parts, empty_columns)
    print(f"collected {sum(part.rows for part in parts):,} rows in {time.monotonic() - started:.2f} s")  # noqa: T201
    return result


def _print_throughput(callback: str, chunks: Sequence[TaskResult], total: int) -> None:
    ended = max(chunk.completed_at for chunk in chunks if chunk.completed_at is not None)
    began = min(chunk.started_at for chunk in chunks if chunk.started_at is not None)
    seconds = max((ended - began).total_seconds(), 1e-6)
    progress = f"{len(chunks):,} of {len(chunks):,} chunks"
    print(f"{callback}: {progress}, {total:,} rows in {seconds:.2f} s ({total / seconds:,.0f} rows/s)")  # noqa: T201
