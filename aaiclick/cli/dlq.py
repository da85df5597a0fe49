"""`aaiclick dlq`: tasks that failed too often, by what went wrong, and their second chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aaiclick.cli.database import first_line, moment, with_database
from aaiclick.cli.output import note, output_option, print_records
from aaiclick.store import control, reads

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


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
        found = with_database(reads.group_dead_letters)
        print_records([_kind(row) for row in found], output)
        return

    async def work(connection: Connection) -> list[asyncpg.Record]:
        return await reads.list_dead_letters(connection, type=task_type, fingerprint=fingerprint, limit=limit)

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
            for row in with_database(work)
        ],
        output,
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

    async def work(connection: Connection) -> set[int]:
        return await control.redrive(
            connection, task_ids=task_ids or None, type=task_type, fingerprint=fingerprint, per_second=rate
        )

    note(f"{len(with_database(work))} tasks start over.")


def _kind(row: asyncpg.Record) -> dict[str, object]:
    return {
        "fingerprint": row["error_fingerprint"],
        "count": row["count"],
        "first": moment(row["first"]),
        "last": moment(row["last"]),
        "example": str(row["example"]),
        "error": first_line(row["error"]),
    }
