"""Who writes down what became of attempts, for traces and structured logs; nobody, unless one of them is asked for."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aaiclick.orchestration.structured import FACTS, facts_of
from aaiclick.orchestration.tracing import get_tracing
from aaiclick.settings import get_settings
from aaiclick.store.leases import Claim, Failure, Success, seconds_since

if TYPE_CHECKING:
    from aaiclick.orchestration.tracing.spans import Tracing
    from aaiclick.orchestration.worker.executor import Outcome, Running

log = logging.getLogger("aaiclick.attempts")


class Witness:
    """Sees the beginning and the end of each attempt."""

    def __init__(self, tracing: Tracing | None, *, writes: bool) -> None:
        self._tracing = tracing
        self._writes = writes

    def began(self, claim: Claim) -> None:
        if self._tracing is not None:
            self._tracing.began(claim)

    def ended(self, running: Running, outcome: Outcome | None) -> None:
        claim, seconds = running.claim, seconds_since(running.began)
        if seconds is None:
            return  # given back before it began
        error = outcome.fingerprint if isinstance(outcome, Failure) else None
        if self._tracing is not None:
            self._tracing.ended(claim, datetime.now(UTC) - timedelta(seconds=seconds), status_of(outcome), error)
        if self._writes:
            facts = facts_of(claim.org_id, claim.job_id, claim.lease.task_id, claim.lease.attempt) | {
                "type": claim.type,
                "status": status_of(outcome),
                "seconds": round(seconds, 6),
            }
            log.info("attempt ended", extra={FACTS: facts if error is None else facts | {"error": error}})

    def close(self) -> None:
        if self._tracing is not None:
            self._tracing.close()


def status_of(outcome: Outcome | None) -> str:
    """In a word what came of an attempt."""
    if outcome is None:
        return "LOST"
    if isinstance(outcome, Success):
        return "COMPLETED"
    return outcome.outcome if isinstance(outcome, Failure) else "RELEASED"


def find_witness() -> Witness | None:
    """For a process that runs tasks."""
    tracing, writes = get_tracing(), get_settings().log_format == "json"
    if tracing is not None:
        tracing.serve_tasks()
    return Witness(tracing, writes=writes) if tracing is not None or writes else None
