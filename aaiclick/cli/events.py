"""`aaiclick events`: send events to waiting tasks; list dataset events that are not routed, and retry them."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any, cast

import click

from aaiclick.api.dead_letters import OutboxEvent, OutboxRetryRequest, OutboxState
from aaiclick.api.workflow_events import SendEventRequest
from aaiclick.cli.database import error_headline, format_time
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import Row, output_option, print_message, print_models
from aaiclick.cli.param_types import EVENT_ID, Number
from aaiclick.cli.remote import PAGE_SIZE


@click.group()
def events() -> None:
    """Send events to waiting tasks; list and retry dataset events.

    \b
    aaiclick events send paid --key order-42
    aaiclick events retry --all
    """


@events.command("send")
@click.argument("name")
@click.option("--key", default="", help="Only waits for this key end.")
@click.option("--payload", default="{}", help="A JSON object: the result of the waits.")
@click.option(
    "--keep", "keep_seconds", type=Number(0, 366 * 86_400), default=86_400, show_default=True,
    help="Seconds during which it also ends waits that begin after it.",
)  # fmt: skip
def send_event(name: str, key: str, payload: str, keep_seconds: float) -> None:
    """Send an event: tasks that wait for it go on."""
    try:
        fields = json.loads(payload)
        if not isinstance(fields, dict):
            raise TypeError
    except (ValueError, TypeError):
        raise click.UsageError("--payload is not a JSON object.") from None
    request = SendEventRequest(name=name, key=key, payload=cast("dict[str, Any]", fields), keep_seconds=keep_seconds)
    with open_operations() as operations:
        sent = operations.send_event(request)
    print_message(f"Event sent; {sent.ended_waits} {'wait' if sent.ended_waits == 1 else 'waits'} ended.")


@events.command("ls")
@click.option("--status", type=click.Choice(["Pending", "Failed"]), default=None, help="Only with this status.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Maximum number of rows.")
@output_option
def list_events(status: OutboxState | None, limit: int, output: str) -> None:
    """List pending and failed events, newest first."""
    with open_operations() as operations:
        listed = list(islice(operations.list_outbox_events(status=status, limit=min(limit, PAGE_SIZE)), limit))
    print_models(listed, output, _table_row, empty_message="No pending or failed events.")


@events.command("retry")
@click.argument("event_ids", type=EVENT_ID, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All failed events.")
def retry_events(event_ids: tuple[int, ...], everything: bool) -> None:
    """Retry failed events, by id or all of them; their jobs then continue."""
    if bool(event_ids) == everything:
        raise click.UsageError("Give ids or --all.")
    with open_operations() as operations:
        selection = OutboxRetryRequest(ids=list(event_ids) or None, all=everything)
        count = operations.retry_outbox_events(selection).count
    print_message(f"{count} {'event' if count == 1 else 'events'} queued for retry.")


def _table_row(event: OutboxEvent) -> Row:
    return {
        "id": str(event.id),
        "dataset": event.dataset or "–",
        "status": event.status,
        "attempts": event.attempts,
        "created": format_time(event.created_at),
        "next retry": format_time(event.available_at) if event.status == "Pending" and event.attempts else "–",
        "error": error_headline(event.last_error) if event.last_error else "",
    }
