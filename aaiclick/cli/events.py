"""`aaiclick events`: events of datasets that wait for the router or could not be routed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.database import first_line, moment
from aaiclick.cli.deeds import note_deed, recorded
from aaiclick.cli.kinds import ID
from aaiclick.cli.output import Row, named, note, output_option, print_rows
from aaiclick.cli.remote import reach
from aaiclick.client import calls
from aaiclick.store import outbox

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

PAGE = 1_000
NAMES = (
    "id", "job_id", "dataset", "status", "attempts", "created_at", "available_at", "processed_at", "cursor",
    "last_error",
)  # fmt: skip


@click.group()
def events() -> None:
    """List events of datasets that are not routed, and retry those that failed."""


@events.command()
@click.option("--status", type=click.Choice(["Pending", "Failed"]), default=None, help="Only with this status.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many to list, at most."
)
@output_option
def ls(status: str | None, limit: int, output: str) -> None:
    """List events that are not routed, newest first."""

    async def work(connection: Connection) -> list[Row]:
        return [dict(row) for row in await outbox.list_events(connection, status=status, limit=limit)]

    def ask(client: Client) -> list[Row]:
        call = calls.get("/v1/outbox", status=status, limit=min(limit, PAGE))
        return remote.rows(client.pages(call), limit)

    print_rows(reach(work, ask), output, _event, lambda row: named(row, NAMES), nothing="No event waits or has failed.")


@events.command()
@click.argument("event_ids", type=ID, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that failed.")
def retry(event_ids: tuple[int, ...], everything: bool) -> None:
    """Route failed events again, by id or all of them; their jobs go on."""
    if bool(event_ids) == everything:
        raise click.UsageError("Name ids, or give --all.")
    ids = list(event_ids) or None

    async def work(connection: Connection) -> int:
        async with recorded(connection):
            done = await outbox.retry_events(connection, ids)
            for org_id, count in (await outbox.events_by_org(connection, done)).items():
                shown = None if ids is None else [str(event_id) for event_id in ids[:100]]
                await note_deed(connection, org_id, "events.retry", "events", {"named": shown, "events": count})
        return len(done)

    def ask(client: Client) -> int:
        body = {"ids": [str(event_id) for event_id in event_ids] or None, "all": everything}
        return int(client.call(calls.post("/v1/outbox/retry", body))["count"])

    count = reach(work, ask)
    note(f"{count} {'event is' if count == 1 else 'events are'} routed again.")


def _event(row: Row) -> Row:
    return {
        "id": str(row["id"]),
        "dataset": row["dataset"] or "–",
        "status": row["status"],
        "attempts": row["attempts"],
        "created": moment(row["created_at"]),
        "next try": moment(row["available_at"]) if row["status"] == "Pending" and row["attempts"] else "–",
        "error": first_line(row["last_error"]) if row["last_error"] else "",
    }
