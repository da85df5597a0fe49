"""Attempt telemetry: spans and JSON log lines for attempts, if traces or JSON logs are enabled."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aaiclick.orchestration.json_logging import LOG_FIELDS, attempt_fields
from aaiclick.orchestration.tracing import get_tracing
from aaiclick.settings import get_settings
from aaiclick.store.engine.leases_and_outcomes import Claim, Failure, Success, seconds_since

if TYPE_CHECKING:
    from aaiclick.orchestration.tracing.spans import Tracing
    from aaiclick.orchestration.worker.failure_outcomes import Outcome
    from aaiclick.orchestration.worker.running_task import RunningTask

log = logging.getLogger("aaiclick.attempts")


class AttemptTelemetry:
    """Records the start and the end of attempts."""

    def __init__(self, tracing: Tracing | None, *, logs_attempts: bool) -> None:
        self._tracing = tracing
        self._logs_attempts = logs_attempts

    def record_start(self, claim: Claim) -> None:
        if self._tracing is not None:
            self._tracing.enter_attempt(claim)

    def record_end(self, running: RunningTask, outcome: Outcome | None) -> None:
        claim, seconds = running.claim, seconds_since(running.began)
        if seconds is None:
            return  # released before it started
        error = outcome.fingerprint if isinstance(outcome, Failure) else None
        if self._tracing is not None:
            self._tracing.record_attempt(
                claim, datetime.now(UTC) - timedelta(seconds=seconds), outcome_status(outcome), error
            )
        if self._logs_attempts:
            fields = attempt_fields(claim.org_id, claim.job_id, claim.lease.task_id, claim.lease.attempt) | {
                "type": claim.type,
                "status": outcome_status(outcome),
                "seconds": round(seconds, 6),
            }
            log.info("attempt ended", extra={LOG_FIELDS: fields if error is None else fields | {"error": error}})

    def close(self) -> None:
        if self._tracing is not None:
            self._tracing.close()


def outcome_status(outcome: Outcome | None) -> str:
    """Status of an attempt by its outcome; None is a lost lease."""
    if outcome is None:
        return "LOST"
    if isinstance(outcome, Success):
        return "COMPLETED"
    return outcome.outcome if isinstance(outcome, Failure) else "RELEASED"


def make_attempt_telemetry() -> AttemptTelemetry | None:
    """Telemetry of this process; None if traces and JSON logs are disabled."""
    tracing, logs_attempts = get_tracing(), get_settings().log_format == "json"
    if tracing is not None:
        tracing.set_global_provider()
    return AttemptTelemetry(tracing, logs_attempts=logs_attempts) if tracing is not None or logs_attempts else None
