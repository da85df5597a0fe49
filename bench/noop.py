"""The task of the benchmarks: it does nothing, so that only the overhead is measured."""

from __future__ import annotations

from aaiclick.orchestration import handler


@handler("noop")
async def noop() -> None: ...
