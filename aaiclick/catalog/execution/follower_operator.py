"""Operator `follower`: fetches new rows of a growing source, in order, up to a limit per run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.execution.operator_run import OperatorRun
from aaiclick.catalog.execution.sql_and_python_operators import split_by_output
from aaiclick.catalog.operators.config import FollowerConfig
from aaiclick.catalog.operators.follower_state import FollowerState, advance_state, next_range, rewind_state
from aaiclick.catalog.operators.integer_ranges import Range

MAX_BATCHES = 100
"""Most batches of one run."""


async def run_follower(run: OperatorRun) -> Mapping[str, object]:
    """Fetch new rows. The cursor is stored with the completion, so a run that dies fetches the same rows again.

    If `tip` takes a `position`, it is called for the stored marks: from the first one that differs, history was
    rewritten and is fetched again; rows with the same unique_key replace the old ones.
    """
    settings = cast("FollowerConfig", run.settings)
    state = FollowerState.from_json(await run.state(), settings.start)
    state = await _rewind_state(run, settings, state)
    tip, _ = await _fetch_tip(run, settings)
    batches: list[object] = []
    for _ in range(MAX_BATCHES):
        next_batch = next_range(state, tip, settings.confirmations, settings.batch_size)
        if next_batch is None:
            break
        batches.append(await _call_function(run, settings.fetch, {"start": next_batch.start, "end": next_batch.end}))
        state = advance_state(state, next_batch, await _fetch_mark(run, settings, next_batch), settings.checkpoints)
    run.remember(state.to_json())
    return split_by_output(run, _join_batches(run, batches)) if batches else {}


async def _rewind_state(run: OperatorRun, settings: FollowerConfig, state: FollowerState) -> FollowerState:
    if not state.marks or not _takes_position(run, settings):
        return state
    current: dict[int, str] = {}
    for position, mark in reversed(state.marks):
        _, now = await _fetch_tip(run, settings, position)
        if now is not None:
            current[position] = now
        if now == mark:
            # Older marks agree as well.
            current |= dict(entry for entry in state.marks if entry[0] < position)
            break
    before = state
    state, rewritten = rewind_state(before, current, settings.start)
    if rewritten is not None:
        print(f"History was rewritten: fetching {rewritten.start} to {rewritten.end} again.")  # noqa: T201  (the log)
    return state


async def _fetch_mark(run: OperatorRun, settings: FollowerConfig, fetched: Range) -> str | None:
    return (await _fetch_tip(run, settings, fetched.end))[1] if _takes_position(run, settings) else None


def _takes_position(run: OperatorRun, settings: FollowerConfig) -> bool:
    assert run.scope.resolve is not None  # noqa: S101
    return "position" in inspect.signature(run.scope.resolve(settings.tip)).parameters


async def _fetch_tip(run: OperatorRun, settings: FollowerConfig, position: int | None = None) -> tuple[int, str | None]:
    result = await _call_function(run, settings.tip, {} if position is None else {"position": position})
    if isinstance(result, int):
        return result, None
    if isinstance(result, list | tuple) and len(cast("list[Any]", result)) == 2:
        tip, mark = cast("list[Any]", result)
        return int(tip), None if mark is None else str(mark)
    raise OperatorError(
        f"{settings.tip} returned {result!r:.80} instead of a position.", remedy="Return a number, or (number, mark)."
    )


async def _call_function(run: OperatorRun, function: str, arguments: dict[str, object]) -> Any:
    assert run.scope.resolve is not None  # noqa: S101
    assert run.scope.call is not None  # noqa: S101
    return await run.scope.call(run.scope.resolve(function), arguments)


def _join_batches(run: OperatorRun, batches: list[Any]) -> object:
    """Join batches of rows into one list, for one output or by output."""
    if len(batches) == 1:
        return batches[0]
    if all(isinstance(batch, list) for batch in batches):
        return [row for batch in batches for row in batch]
    if all(isinstance(batch, dict) for batch in batches):
        return {name: [row for batch in batches for row in batch.get(name, [])] for name in run.definition.outputs}
    raise OperatorError(
        f"The batches of {run.definition.name!r} cannot be joined.", remedy="Have fetch return a list of rows."
    )
