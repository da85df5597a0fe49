"""Outcomes of attempts that did not succeed: failures with their error text, and releases."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from aaiclick.data.errors import DataTestError
from aaiclick.errors import EntrypointError
from aaiclick.orchestration.decorator_checks import describe_call_error, describe_function
from aaiclick.orchestration.gateway import WorkerGateway
from aaiclick.orchestration.retry_policy import PermanentError, RetryPolicy, error_fingerprint, is_permanent
from aaiclick.orchestration.secret_redaction import MASK
from aaiclick.orchestration.worker.outages import RELEASE_SECONDS, find_outage
from aaiclick.orchestration.worker.running_task import RunningTask, StopReason
from aaiclick.store.engine.leases_and_outcomes import Failure, Lease, Success
from aaiclick.tracebacks import escape_text, format_error

ERROR_CHARACTERS = 20_000

Outcome = Success | Failure | Lease
"""Outcome of an attempt; a bare lease is released without an attempt being counted."""


def stopped_outcome(running: RunningTask) -> Outcome | None:
    """Outcome of an attempt that was stopped, by its reason."""
    if running.stop_reason is StopReason.LOST:
        return None
    if running.stop_reason is StopReason.CANCELLED:
        return make_failure(running, "Cancelled while running.", "cancelled", permanent=True)
    if running.stop_reason is StopReason.TIMEOUT:
        return make_failure(running, f"Timed out after {running.timeout_seconds:g} s.", "timeout", permanent=False)
    return running.claim.lease


def failure_outcome(running: RunningTask, error: BaseException, gateway: WorkerGateway) -> Outcome | None:
    """Outcome of an attempt that raised an exception."""
    if running.stop_reason is not None and not (
        running.stop_reason is StopReason.TIMEOUT and running.outage is not None
    ):
        return stopped_outcome(running)
    redact = running.log.redactor.redact
    try:
        outage = running.outage if running.stop_reason is not None else find_outage(error, gateway.addresses)
        text = f"Released, not charged: {outage}" if outage is not None else _format_error(error)
        fingerprint_text, permanent = error_fingerprint(outage or error, redact), is_permanent(error)
    except BaseException as nested:  # noqa: BLE001  (the exception's own code: `__str__`, a property, `__cause__`)
        outage, permanent = None, False
        text = f"{type(error).__name__}: its description raised {type(nested).__name__}."
        fingerprint_text = type(error).__name__
    for secret in gateway.secrets:  # a driver's exception may carry the address it used
        text = text.replace(secret, MASK)
    text = redact(text)
    running.log.write(text + "\n")
    running.log.close()
    if outage is None:
        failure = make_failure(running, text, fingerprint_text, permanent=permanent)
        is_tested = isinstance(error, DataTestError)
        return replace(failure, tests=tuple(asdict(result) for result in error.results)) if is_tested else failure
    released = make_failure(running, text, fingerprint_text, permanent=False)
    return replace(released, charged=False, outcome="RELEASED", delay_seconds=RELEASE_SECONDS)


def make_failure(running: RunningTask, error: str, fingerprint_text: str, *, permanent: bool) -> Failure:
    claim = running.claim
    policy = RetryPolicy.from_json(claim.retry_policy)
    return Failure(
        lease=claim.lease,
        error=escape_text(error[:ERROR_CHARACTERS]),
        fingerprint=fingerprint_text,
        permanent=permanent,
        delay_seconds=policy.delay_seconds(claim.failures + 1),
        began=running.began,
    )


def make_call_error(function: Callable[..., object], error: TypeError) -> PermanentError:
    """Error for arguments that do not match the signature of a task's function."""
    described = describe_call_error(function, error)
    return PermanentError(f"{described.what}\n\n{describe_function(function)}\n", remedy=described.remedy)


def make_rejected_failure(outcome: Outcome, error: BaseException) -> Failure:
    """Failure for an outcome that the queue rejected: a value too large, or with characters it cannot store."""
    return Failure(
        lease=outcome if isinstance(outcome, Lease) else outcome.lease,
        error=escape_text(f"The outcome cannot be stored: {error}"[:ERROR_CHARACTERS]),
        fingerprint=f"refused:{type(error).__name__}",
        delay_seconds=RetryPolicy().delay_seconds(1),
    )


def _format_error(error: BaseException) -> str:
    if isinstance(error, EntrypointError):  # another worker may have the module
        return f"{error}\nIt ran on {socket.gethostname()}, process {os.getpid()}, in {Path.cwd()}."
    return format_error(error)
