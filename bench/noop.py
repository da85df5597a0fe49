"""The task of the benchmarks: it does nothing, so that what is measured is everything around it."""

from __future__ import annotations

from aaiclick.orchestration import handler


@handler("noop")
async def noop() -> None: ...
