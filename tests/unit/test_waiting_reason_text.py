"""Messages about tasks that wait while a command waits for their job."""

from __future__ import annotations

from aaiclick.cli.waiting_reason_text import describe_waiting, without_countdown
from aaiclick.store.engine.explain_task import Reason


def test_retry_is_described_with_the_error_of_its_attempt():
    reasons = [Reason("retry", "failed (1 of 4 attempts) and is retried at 12:00, in 2 s")]
    text = describe_waiting("shop.load", reasons, "Traceback …\n  File …\nValueError: no rows\n")
    assert text == "shop.load failed (1 of 4 attempts) and is retried at 12:00, in 2 s\n  ValueError: no rows"


def test_approval_is_described_with_its_command():
    reasons = [Reason("approval", "waits for finance to decide: Pay?, until 12:00")]
    text = describe_waiting("aaiclick.orchestration.approvals.run_approval", reasons, None)
    assert text == "The job waits for finance to decide: Pay?, until 12:00. List what waits: aaiclick approvals ls"


def test_message_changes_only_with_its_reason():
    first, second = (describe_waiting("a.b", [Reason("sleep", f"starts at 12:00, in {n} s")], None) for n in (9, 4))
    assert first == "a.b waits: starts at 12:00, in 9 s"
    assert without_countdown(first) == without_countdown(second)
