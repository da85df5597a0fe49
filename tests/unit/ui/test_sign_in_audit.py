"""Rate limit of sign-in audit entries."""

from __future__ import annotations

from aaiclick.server.ui.sign_in_audit import MAX_ENTRIES, UNKNOWN_ACTOR, WINDOW_SECONDS, SignInAudit


def test_entries_are_limited_and_suppressed_ones_counted() -> None:
    now = 0.0
    audit = SignInAudit(clock=lambda: now)
    assert [audit.count_entry(UNKNOWN_ACTOR) for _ in range(MAX_ENTRIES)] == [0] * MAX_ENTRIES
    assert [audit.count_entry(UNKNOWN_ACTOR) for _ in range(1_000)] == [None] * 1_000
    assert audit.count_entry("user 1") == 0  # limits are per actor
    now = WINDOW_SECONDS
    assert audit.count_entry(UNKNOWN_ACTOR) == 1_000
    assert audit.count_entry(UNKNOWN_ACTOR) == 0


def test_old_windows_are_removed() -> None:
    now = 0.0
    audit = SignInAudit(clock=lambda: now)
    for number in range(100):
        audit.count_entry(f"user {number}")
    now = 2 * WINDOW_SECONDS
    audit.count_entry("user 100")
    assert len(audit._windows) == 1
