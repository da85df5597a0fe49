"""`follower` in a task: what a growing source has that was not fetched yet, in order, up to a bound per run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.operators.built_in import FollowerConfig
from aaiclick.catalog.operators.following import FollowerState, advanced, next_range, rewound
from aaiclick.catalog.operators.ranges import Range
from aaiclick.catalog.running.operators import by_output
from aaiclick.catalog.running.run import OperatorRun

MAX_BATCHES = 100
"""Batches of one run; the next one goes on from there."""


async def run_follower(run: OperatorRun) -> Mapping[str, Any]:
    """Fetch what is new. Where it got to is remembered with the completion: a run that dies fetches the same again.

    If `tip` takes a `position`, it is asked for the marks that were kept: where they differ, history was rewritten, and
    is fetched again from there; rows of the same unique_key replace the old ones.
    """
    settings = cast("FollowerConfig", run.settings)
    state = FollowerState.from_json(await run.state(), settings.start)
    state = await _rewind(run, settings, state)
    tip, _ = await _tip(run, settings)
    fetched: list[Any] = []
    for _ in range(MAX_BATCHES):
        wanted = next_range(state, tip, settings.confirmations, settings.batch_size)
        if wanted is None:
            break
        fetched.append(await _call(run, settings.fetch, {"start": wanted.start, "end": wanted.end}))
        state = advanced(state, wanted, await _mark(run, settings, wanted), settings.checkpoints)
    run.remember(state.to_json())
    return by_output(run, _joined(run, fetched)) if fetched else {}


async def _rewind(run: OperatorRun, settings: FollowerConfig, state: FollowerState) -> FollowerState:
    if not state.marks or not _takes_position(run, settings):
        return state
    current: dict[int, str] = {}
    for position, mark in reversed(state.marks):
        _, now = await _tip(run, settings, position)
        if now is not None:
            current[position] = now
        if now == mark:
            # Older ones are under this one: they agree as well.
            current |= dict(each for each in state.marks if each[0] < position)
            break
    before = state
    state, undone = rewound(before, current, settings.start)
    if undone is not None:
        print(f"History was rewritten: {undone.start} to {undone.end} is fetched again.")  # noqa: T201  (the log)
    return state


async def _mark(run: OperatorRun, settings: FollowerConfig, fetched: Range) -> str | None:
    return (await _tip(run, settings, fetched.end))[1] if _takes_position(run, settings) else None


def _takes_position(run: OperatorRun, settings: FollowerConfig) -> bool:
    assert run.scope.resolve is not None  # noqa: S101
    return "position" in inspect.signature(run.scope.resolve(settings.tip)).parameters


async def _tip(run: OperatorRun, settings: FollowerConfig, position: int | None = None) -> tuple[int, str | None]:
    said = await _call(run, settings.tip, {} if position is None else {"position": position})
    if isinstance(said, int):
        return said, None
    if isinstance(said, list | tuple) and len(cast("list[Any]", said)) == 2:
        where, mark = cast("list[Any]", said)
        return int(where), None if mark is None else str(mark)
    raise OperatorError(
        f"{settings.tip} returned {said!r:.80} instead of a position.", remedy="Return a number, or (number, mark)."
    )


async def _call(run: OperatorRun, function: str, arguments: dict[str, Any]) -> Any:
    assert run.scope.resolve is not None  # noqa: S101
    assert run.scope.call is not None  # noqa: S101
    return await run.scope.call(run.scope.resolve(function), arguments)


def _joined(run: OperatorRun, fetched: list[Any]) -> Any:
    """Batches as one: lists of rows, for one output or by output."""
    if len(fetched) == 1:
        return fetched[0]
    if all(isinstance(each, list) for each in fetched):
        return [row for each in fetched for row in each]
    if all(isinstance(each, dict) for each in fetched):
        return {name: [row for each in fetched for row in each.get(name, [])] for name in run.work.outputs}
    raise OperatorError(
        f"The batches of {run.work.name!r} cannot be joined.", remedy="Have fetch return a list of rows."
    )
