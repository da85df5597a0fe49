"""Events of datasets, emitted by a running source."""

from __future__ import annotations

from aaiclick.errors import RequestError
from aaiclick.orchestration.task_context import current_scope, refuse_repeated
from aaiclick.store.enums import MAX_CURSOR_CHARACTERS

RESERVED_CURSORS = ("ticket-", "event-")
"""Prefixes of cursors that aaiclick assigns to updates without one."""


async def emit_event(rows: object, *, cursor: str | int, output: str | None = None) -> None:
    """Publish rows of a source's output while it runs, and start the definitions that read it.

    `cursor` identifies the update: emitting the same cursor again, in a retried attempt, has no effect. `rows` is
    anything that can become an Object; without rows nothing happens. `output` is required if there are several.

    ```python
    async def read_orders() -> None:  # the function of a definition with `activation: source`
        await emit_event([{"id": 42}], cursor="42")
    ```
    """
    refuse_repeated("emit an event")
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
