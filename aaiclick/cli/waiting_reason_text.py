"""Message about a task that waits while a command waits for its job."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from aaiclick.cli.database import error_headline

_COUNTDOWN = re.compile(r", in \d+ s|, which is now")


class ReasonText(Protocol):
    """Reason of a task's state, from the database or a server."""

    @property
    def code(self) -> str: ...
    @property
    def text(self) -> str: ...


def describe_waiting(task_type: str, reasons: Iterable[ReasonText], error: str | None) -> str:
    """Why a task waits, with the error of the attempt that is retried."""
    listed = list(reasons)
    texts = "; ".join(reason.text.partition("\n")[0] for reason in listed)
    if any(reason.code == "approval" for reason in listed):
        return f"The job {texts}. List what waits: aaiclick approvals ls"
    is_retry = error is not None and any(reason.code == "retry" for reason in listed)
    text = f"{task_type} {texts}" if is_retry else f"{task_type} waits: {texts}"
    return f"{text}\n  {error_headline(error)}" if is_retry else text


def without_countdown(text: str) -> str:
    """The message without the seconds that are left: it is printed again only if something else has changed."""
    return _COUNTDOWN.sub("", text)
