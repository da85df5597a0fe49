"""`aaiclick events`: list pending and failed dataset events, and retry failed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.audit import audited_transaction, write_audit
from aaiclick.cli.database import error_headline, format_time
from aaiclick.cli.output import Row, output_option, print_message, print_rows, select_fields
from aaiclick.cli.param_types import ID
from aaiclick.cli.remote import call_local_or_remote
from aaiclick.client import requests
from aaiclick.store.catalog import outbox

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.connections import Connection

PAGE_SIZE = 1_000
JSON_FIELDS = (
    "id", "job_id", "dataset", "status", "attempts", "created_at", "available_at", "processed_at", "cursor",
    "last_error",
)  # fmt: skip


@click.group()
def events() -> None:
    """List pending and failed dataset events; retry failed ones."""


@events.command("ls")
@click.option("--status", type=click.Choice(["Pending", "Failed"]), default=None, help="Only with this status.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Maximum number of rows.")
@output_option
def list_events(status: str | None, limit: int, output: str) -> None:
    """List pending and failed events, newest first."""

    async def list_local(connection: Connection) -> list[Row]:
        return [dict(row) for row in await outbox.list_events(connection, status=status, limit=limit)]

    def list_remote(client: Client) -> list[Row]:
        call = requests.get("/v1/outbox", status=status, limit=min(limit, PAGE_SIZE))
        return remote.parse_rows(client.pages(call), limit)

    print_rows(
        call_local_or_remote(list_local, list_remote),
        output,
        _table_row,
        lambda row: select_fields(row, JSON_FIELDS),
        empty_message="No pending or failed events.",
    )


@events.command("retry")
@click.argument("event_ids", type=ID, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All failed events.")
def retry_events(event_ids: tuple[int, ...], everything: bool) -> None:
    """Retry failed events, by id or all of them; their jobs then continue."""
    if bool(event_ids) == everything:
        raise click.UsageError("Give ids or --all.")
    ids = list(event_ids) or None

    async def retry_local(connection: Connection) -> int:
        async with audited_transaction(connection):
            retried = await outbox.retry_events(connection, ids)
            for org_id, count in (await outbox.count_events_by_org(connection, retried)).items():
                id_texts = None if ids is None else [str(event_id) for event_id in ids[:100]]
                await write_audit(connection, org_id, "events.retry", "events", {"named": id_texts, "events": count})
        return len(retried)

    def retry_remote(client: Client) -> int:
        body = {"ids": [str(event_id) for event_id in event_ids] or None, "all": everything}
        return int(client.call(requests.post("/v1/outbox/retry", body))["count"])

    count = call_local_or_remote(retry_local, retry_remote)
    print_message(f"{count} {'event' if count == 1 else 'events'} queued for retry.")


def _table_row(row: Row) -> Row:
    return {
        "id": str(row["id"]),
        "dataset": row["dataset"] or "–",
        "status": row["status"],
        "attempts": row["attempts"],
        "created": format_time(row["created_at"]),
        "next retry": format_time(row["available_at"]) if row["status"] == "Pending" and row["attempts"] else "–",
        "error": error_headline(row["last_error"]) if row["last_error"] else "",
    }
