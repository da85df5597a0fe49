"""`aaiclick dlq`: tasks that failed too often, by what went wrong, and their second chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.database import first_line, moment
from aaiclick.cli.output import note, output_option, print_records
from aaiclick.cli.remote import Row, reach
from aaiclick.client import calls
from aaiclick.store import control, reads

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

PAGE = 1_000
NOTHING = "There are no such dead letters."


@click.group()
def dlq() -> None:
    """List dead letters and give them another chance."""


@dlq.command()
@click.option("--type", "task_type", default=None, help="Only of this type.")
@click.option("--fingerprint", default=None, help="Only with this error.")
@click.option("--group", is_flag=True, help="One line for each kind of error.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@output_option
def ls(task_type: str | None, fingerprint: str | None, group: bool, limit: int, output: str) -> None:
    """List dead letters, newest first."""
    if group:
        found = reach(_groups, _groups_from_server)
        print_records([_kind(row) for row in found], output, nothing=NOTHING)
        return

    async def work(connection: Connection) -> list[Row]:
        letters = await reads.list_dead_letters(connection, type=task_type, fingerprint=fingerprint, limit=limit)
        return [dict(each) for each in letters]

    def ask(client: Client) -> list[Row]:
        return remote.rows(client.dead_letters(type=task_type, fingerprint=fingerprint, limit=min(limit, PAGE)), limit)

    print_records(
        [
            {
                "id": str(row["id"]),
                "type": row["type"],
                "attempts": row["failures"],
                "died": moment(row["completed_at"]),
                "fingerprint": row["error_fingerprint"],
                "error": first_line(row["error"]),
            }
            for row in reach(work, ask)
        ],
        output,
        nothing=NOTHING,
    )


@dlq.command()
@click.argument("task_ids", type=int, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option("--type", "task_type", default=None, help="All of this type.")
@click.option("--fingerprint", default=None, help="All with this error.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), default=None, help="At most so many a second.")
def redrive(
    task_ids: tuple[int, ...], everything: bool, task_type: str | None, fingerprint: str | None, rate: float | None
) -> None:
    """Start dead letters over, by id or by what they have in common."""
    if not (task_ids or everything or task_type or fingerprint):
        raise click.UsageError("Name ids, or give --all, --type or --fingerprint.")

    async def work(connection: Connection) -> int:
        return len(
            await control.redrive(
                connection, task_ids=task_ids or None, type=task_type, fingerprint=fingerprint, per_second=rate
            )
        )

    def ask(client: Client) -> int:
        ids = [str(task_id) for task_id in task_ids] or None
        return client.redrive(ids=ids, type=task_type, fingerprint=fingerprint, all=everything, per_second=rate)

    note(f"{reach(work, ask)} tasks start over.")


async def _groups(connection: Connection) -> list[Row]:
    return [dict(each) for each in await reads.group_dead_letters(connection)]


def _groups_from_server(client: Client) -> list[Row]:
    groups = client.call(calls.get("/v1/dead-letters/groups"))
    return remote.rows(group | {"error_fingerprint": group["fingerprint"]} for group in groups)


def _kind(row: Row) -> dict[str, object]:
    return {
        "fingerprint": row["error_fingerprint"],
        "count": row["count"],
        "first": moment(row["first"]),
        "last": moment(row["last"]),
        "example": str(row["example"]),
        "error": first_line(row["error"]),
    }
