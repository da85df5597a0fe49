"""Emit events of datasets from a running source."""

from __future__ import annotations

from typing import Any

from aaiclick.errors import RequestError
from aaiclick.orchestration.scope import current_scope

MAX_CURSOR_CHARACTERS = 500
RESERVED_CURSORS = ("ticket-", "event-")
"""Prefixes of the cursors that aaiclick gives to updates without one."""


async def emit_event(rows: Any, *, cursor: str | int, output: str | None = None) -> None:
    """Publish rows of a source's output now, and start the definitions that read it, while the source goes on.

    `cursor` identifies the update: a retried attempt that emits the same cursor again starts nothing twice. `rows` is
    anything that becomes an Object; without rows nothing happens. `output` is needed if there are several.
    """
    scope = current_scope()
    if scope is None or scope.emit is None:
        raise RequestError(
            "Only a source of a DAG emits events while it runs.",
            remedy="Call emit_event in the function of a job with 'activation: source'.",
        )
    text = str(cursor)
    check_cursor(text)
    await scope.emit(rows, text, output)


def check_cursor(cursor: str) -> None:
    """Raises RequestError if a cursor cannot identify an update."""
    if not 0 < len(cursor) <= MAX_CURSOR_CHARACTERS or "\0" in cursor or cursor.startswith(RESERVED_CURSORS):
        raise RequestError(
            f"{cursor!r:.60} cannot be a cursor.",
            remedy=f"Use 1 to {MAX_CURSOR_CHARACTERS} characters that do not begin with "
            f"{' or '.join(map(repr, RESERVED_CURSORS))}.",
        )
