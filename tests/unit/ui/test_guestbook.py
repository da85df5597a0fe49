"""Sign-ins in the audit log are bounded, and what is left out is counted."""

from __future__ import annotations

from aaiclick.server.ui.guestbook import MOST, REFUSED, WINDOW_SECONDS, Guestbook


def test_nobody_fills_the_book_and_what_is_left_out_is_counted() -> None:
    now = 0.0
    book = Guestbook(clock=lambda: now)
    assert [book.admit(REFUSED) for _ in range(MOST)] == [0] * MOST
    assert [book.admit(REFUSED) for _ in range(1_000)] == [None] * 1_000
    assert book.admit("user 1") == 0  # who is refused takes nobody's lines
    now = WINDOW_SECONDS
    assert book.admit(REFUSED) == 1_000
    assert book.admit(REFUSED) == 0


def test_guests_who_left_long_ago_are_forgotten() -> None:
    now = 0.0
    book = Guestbook(clock=lambda: now)
    for number in range(100):
        book.admit(f"user {number}")
    now = 2 * WINDOW_SECONDS
    book.admit("somebody")
    assert len(book._windows) == 1
