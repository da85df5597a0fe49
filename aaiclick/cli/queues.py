"""`aaiclick queues` and `aaiclick workers`: what waits where, and who is there to do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aaiclick.cli.database import moment, with_database
from aaiclick.cli.output import note, output_option, print_records
from aaiclick.store import control, queue, reads
from aaiclick.store.models import Worker, WorkerStatus

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


@click.group()
def queues() -> None:
    """Show, pause and resume queues."""


@queues.command()
@output_option
def ls(output: str) -> None:
    """List queues with what waits in them and why."""
    records = [dict(row) | {"paused_at": moment(row["paused_at"]) or None} for row in with_database(reads.queue_depths)]
    print_records(records, output)


@queues.command()
@click.argument("name")
def pause(name: str) -> None:
    """Let nothing more of a queue begin."""
    with_database(lambda connection: control.pause_queue(connection, name))
    note(f"Queue {name!r} is paused: aaiclick queues resume {name}")


@queues.command()
@click.argument("name")
def resume(name: str) -> None:
    """Let a paused queue go on."""
    with_database(lambda connection: control.resume_queue(connection, name))
    note(f"Queue {name!r} goes on.")


@click.group()
def workers() -> None:
    """Show workers."""


@workers.command("ls")
@click.option("--all", "everything", is_flag=True, help="Stopped ones too.")
@output_option
def list_workers(everything: bool, output: str) -> None:
    """List worker processes."""

    async def work(connection: Connection) -> list[Worker]:
        found = await queue.list_workers(connection)
        return [worker for worker in found if everything or worker.status != WorkerStatus.STOPPED]

    print_records(
        [
            {
                "id": str(worker.id),
                "status": worker.status.value,
                "host": worker.hostname,
                "pid": worker.pid,
                "slots": worker.pool_size,
                "leads": "yes" if worker.is_leader else "",
                "heartbeat": moment(worker.last_heartbeat),
                "version": worker.version,
            }
            for worker in with_database(work)
        ],
        output,
    )
