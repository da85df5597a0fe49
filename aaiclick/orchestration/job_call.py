"""PendingJob: the call of a @job, which is submitted when it is awaited."""

from __future__ import annotations

from aaiclick.data.awaitable import PendingResult
from aaiclick.orchestration.graph import Job


class PendingJob(PendingResult[Job]):
    """Call of a @job that is not submitted yet."""

    dropped = "{call} was not submitted: the call of a @job has to be awaited."
    remedy = "Write (await {call}); without async, asyncio.run({call}) or aaiclick.orchestration.sync.submit({call})."
