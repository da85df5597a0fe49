"""The tasks behind the operators: one spreads the work, one for each chunk does it, one puts it together.

    map_rows ─► chunk, chunk, chunk … (a group) ─► collect

`map_rows` counts and does not read; it returns `collect`, so that the handle's result is what that makes. A chunk that
fails is tried again alone. A chunk that runs twice at once, or again after its worker died, writes its rows twice,
under the names of two attempts; PostgreSQL accepted one of them, and `collect` asks it which (see `data.gather`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from aaiclick.data import Object, View
from aaiclick.data.forms import read_as
from aaiclick.data.gather import (
    Part,
    columns_from_json,
    columns_to_json,
    create_gathering,
    described,
    seal,
    source_of,
    write_part,
)
from aaiclick.operators.callbacks import parameters_of
from aaiclick.orchestration import Group, PermanentError, Task, get_current_context
from aaiclick.orchestration.scope import Record, TaskScope, current_scope

HERE = __name__


# --- spreading ----------------------------------------------------------------------------------------------------


async def map_rows(
    callback: str,
    inputs: Sequence[Object],
    chunk_rows: int,
    options: Mapping[str, Any],
    extra: Mapping[str, Any],
    schema: Mapping[str, str] | None = None,
) -> Task:
    """Add a task for each chunk, and return the one that collects what they write."""
    target = await create_gathering()
    common = {"callback": callback, "extra": extra, "target": target, "schema": schema}
    return await _spread("map", inputs, chunk_rows, options, common, target)


async def foreach_rows(
    callback: str,
    inputs: Sequence[Object],
    chunk_rows: int,
    options: Mapping[str, Any],
    extra: Mapping[str, Any],
) -> Task:
    return await _spread("foreach", inputs, chunk_rows, options, {"callback": callback, "extra": extra}, None)


async def reduce_rows(
    callback: str,
    inputs: Sequence[Object],
    chunk_rows: int,
    options: Mapping[str, Any],
    extra: Mapping[str, Any],
    before: int | None = None,
) -> Any:
    """One level: few enough rows are reduced here and now, more are mapped, and what comes out is the next level."""
    (whole,) = inputs
    total = await whole.count()
    if total <= chunk_rows:
        return await _call(callback, [whole], extra)
    if before is not None and total >= before:
        raise PermanentError(
            f"{callback} made {total:,} rows out of {before:,}: it does not reduce.",
            remedy="Return fewer rows than were given, or use larger chunks.",
        )
    arguments = {
        "callback": callback, "inputs": [whole], "chunk_rows": chunk_rows, "options": options, "extra": extra,
    }  # fmt: skip
    level = Task(f"{HERE}.map_rows", arguments, name=f"reduce {callback}")
    return Task(f"{HERE}.reduce_rows", {**arguments, "inputs": [level], "before": total}, name=f"reduce {callback}")


async def _spread(
    operator: str,
    inputs: Sequence[Object],
    chunk_rows: int,
    options: Mapping[str, Any],
    common: Mapping[str, Any],
    target: Object | None,
) -> Task:
    whole = [await _whole(each) for each in inputs]
    lengths = [await each.count() for each in whole]
    if len(set(lengths)) > 1:
        raise PermanentError(
            f"{operator} over Objects of {' and '.join(f'{each:,}' for each in lengths)} rows.",
            remedy="Join them on a column, or slice them to one length.",
        )
    callback, total = common["callback"], lengths[0]
    group = Group(f"{operator} {callback}")
    chunks = [
        Task(
            f"{HERE}.chunk",
            {**common, "inputs": [each.slice(start, min(chunk_rows, total - start)) for each in whole], "number": n,
             "start": start, "expected": min(chunk_rows, total - start)},
            group=group, **options,
        )
        for n, start in enumerate(range(0, max(total, 1), chunk_rows))
    ]  # fmt: skip
    print(f"{operator} {callback}: {total:,} rows in {len(chunks):,} chunks of {chunk_rows:,}")  # noqa: T201  (the log)
    arguments = {"group_id": str(group.id), "target": target, "callback": callback}
    place = {key: options[key] for key in ("queue", "priority", "max_attempts", "retry_policy") if key in options}
    last = Task(f"{HERE}.collect", arguments, name=f"collect {callback}", **place)
    last.depends_on(group)
    return last


async def _whole(source: Object) -> View:
    """The rows to work on as a range of a table: what a condition selects is stored first, since finding the n-th
    matching row anew for every chunk would read all rows for each.
    """
    if isinstance(source, View):
        return source if source.where_condition is None else View(await source.materialize())
    return View(await source)


# --- one chunk ----------------------------------------------------------------------------------------------------


async def chunk(
    callback: str,
    inputs: Sequence[Object],
    extra: Mapping[str, Any],
    number: int,
    start: int,
    expected: int,
    target: Object | None = None,
    schema: Mapping[str, str] | None = None,
) -> Record:
    """Call the callback on one chunk and write what it returns."""
    value = await _call(callback, inputs, extra)
    record = Record(chunk=number, start=start, rows=expected, out=0)
    if target is None:
        return record
    if value is None:
        raise PermanentError(f"{callback} returned nothing.", remedy="Return rows, or use foreach().")
    source = source_of(number, _scope().lease.attempt)
    record["out"] = await write_part(target, value, source, start, schema)
    if not record["out"]:
        record["empty"] = columns_to_json(*described(value, schema))
    return record


async def _call(callback: str, inputs: Sequence[Object], extra: Mapping[str, Any]) -> Any:
    scope = _scope()
    assert scope.resolve is not None  # noqa: S101
    assert scope.call is not None  # noqa: S101
    function = scope.resolve(callback)
    wanted = parameters_of(function, len(inputs), extra)
    chunks = {name: await read_as(view, kind) for (name, kind), view in zip(wanted, inputs, strict=True)}
    return await scope.call(function, {**chunks, **extra})


def _scope() -> TaskScope:
    scope = current_scope()
    if scope is None:
        raise PermanentError("A step of an operator runs in a task only.")
    return scope


# --- putting together ---------------------------------------------------------------------------------------------


async def collect(group_id: str, callback: str, target: Object | None = None) -> Object | None:
    """One Object of what the chunks wrote, of each by the attempt that was accepted."""
    began = time.monotonic()
    rows = await get_current_context().group_results(int(group_id))
    records = [(row["attempt"], json.loads(row["result"])) for row in rows]
    parts = sorted(
        (Part(r["chunk"], attempt, r["start"], r["rows"], r["out"]) for attempt, r in records), key=lambda p: p.number
    )
    _report(callback, rows, sum(part.expected for part in parts))
    if target is None:
        return None
    spare = next((columns_from_json(r["empty"]) for _, r in records if "empty" in r), None)
    made = await seal(target, parts, spare)
    print(f"collected {sum(part.rows for part in parts):,} rows in {time.monotonic() - began:.2f} s")  # noqa: T201
    return made


def _report(callback: str, chunks: Sequence[Any], total: int) -> None:
    span = max(row["completed_at"] for row in chunks) - min(row["started_at"] for row in chunks)
    seconds = max(span.total_seconds(), 1e-6)
    many = f"{len(chunks):,} of {len(chunks):,} chunks"
    print(f"{callback}: {many}, {total:,} rows in {seconds:.2f} s ({total / seconds:,.0f} rows/s)")  # noqa: T201
