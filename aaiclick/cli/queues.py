"""`aaiclick queues` and `aaiclick workers`: what waits where, and who is there to do it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.database import moment, org_id_of
from aaiclick.cli.deeds import do, note_deed, recorded
from aaiclick.cli.key import every_org_option, org_option
from aaiclick.cli.kinds import ID
from aaiclick.cli.limits import given, limit_options
from aaiclick.cli.output import Row, named, note, output_option, print_rows
from aaiclick.cli.remote import reach
from aaiclick.settings import get_settings
from aaiclick.store import control, queue, reads
from aaiclick.store.orgs import Limits
from aaiclick.store.words import DEFAULT_ORG_ID, WorkerStatus
from aaiclick.store.workers import worker_state

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

DEPTHS = ("ready", "scheduled", "blocked", "held", "running")
LIMITS = ("max_running", "rate_per_second", "rate_burst", "weight")
WORKER_NAMES = (
    "id", "status", "hostname", "pid", "queues", "pool_size", "is_leader", "version", "started_at", "last_heartbeat",
    "drain_requested_at", "stopped_at", "tasks_completed", "tasks_failed",
)  # fmt: skip


@click.group()
def queues() -> None:
    """Show, limit, pause and resume queues."""


@queues.command()
@every_org_option
@output_option
def ls(org: str | None, output: str) -> None:
    """List queues with what waits in them and why."""

    async def work(connection: Connection) -> list[Row]:
        org_id = None if org is None else await org_id_of(connection, org)
        found = await reads.queue_depths(connection, org_id)
        return [dict(each) | {"name": each["queue"], "weight": each["weight"] or 1} for each in found]

    def ask(client: Client) -> list[Row]:
        own = remote.own_org(client, org)
        return [each | {"org": own} for each in remote.rows(client.queues())]

    nothing = "Nothing waits or runs in any queue, and none has settings of its own."
    print_rows(reach(work, ask), output, _line, _facts, nothing=nothing)


@queues.command("set")
@click.argument("name")
@limit_options
@org_option
def limit(name: str, limits: Limits, org: str) -> None:
    """Give a queue its share and its limits; what is left out is lifted."""

    do(
        org,
        "queue.limit",
        name,
        lambda connection, name, org_id: control.set_queue(connection, name, limits, org_id),
        lambda client: client.limit_queue(name, **given(limits)),
        given(limits),
    )
    note(f"Queue {name!r} has " + ", ".join(f"{what} {value}" for what, value in given(limits).items()) + ".")


@queues.command()
@click.argument("name")
@org_option
def pause(name: str, org: str) -> None:
    """Let nothing more of a queue begin."""

    do(org, "queue.pause", name, control.pause_queue, lambda client: client.pause_queue(name))
    note(f"Queue {name!r} is paused: aaiclick queues resume {name}")


@queues.command()
@click.argument("name")
@org_option
def resume(name: str, org: str) -> None:
    """Let a paused queue go on."""

    do(org, "queue.resume", name, control.resume_queue, lambda client: client.resume_queue(name))
    note(f"Queue {name!r} goes on.")


def _facts(row: Row) -> Row:
    return named(row, ("org", "name", *DEPTHS, *LIMITS, "paused_at"))


def _line(row: Row) -> Row:
    figures = {name: row[name] for name in (*DEPTHS, *LIMITS)}
    return {"org": row["org"], "queue": row["name"], **figures, "paused": moment(row["paused_at"])}


@click.group()
def workers() -> None:
    """Show workers, and send them home."""


@workers.command("ls")
@click.option("--all", "everything", is_flag=True, help="Stopped ones too.")
@output_option
def list_workers(everything: bool, output: str) -> None:
    """List worker processes."""

    async def work(connection: Connection) -> list[Row]:
        found = await queue.list_workers(connection)
        return [asdict(worker) for worker in found if everything or worker.status != WorkerStatus.STOPPED]

    rows = reach(work, lambda client: remote.rows(client.workers(stopped=everything)))
    nothing = "There are no workers: aaiclick worker start" + ("" if everything else ", or --all for stopped ones.")
    print_rows(rows, output, _worker, _worker_facts, nothing=nothing)


def _worker_facts(row: Row) -> Row:
    return named(row, WORKER_NAMES)


def _worker(row: Row) -> Row:
    return {
        "id": str(row["id"]),
        "status": worker_state(
            row["status"], row["last_heartbeat"], timeout_seconds=get_settings().worker_timeout_seconds
        ),
        "host": row["hostname"],
        "pid": row["pid"],
        "slots": row["pool_size"],
        "leads": "yes" if row["is_leader"] else "",
        "drains": "yes" if row["drain_requested_at"] and not row["stopped_at"] else "",
        "heartbeat": moment(row["last_heartbeat"]),
        "version": row["version"],
    }


@workers.command()
@click.argument("worker_id", type=ID)
def drain(worker_id: int) -> None:
    """Have a worker finish what it runs and end."""

    async def work(connection: Connection) -> None:
        async with recorded(connection):
            await queue.drain_worker(connection, worker_id)
            await note_deed(connection, DEFAULT_ORG_ID, "worker.drain", str(worker_id))

    reach(work, lambda client: client.drain_worker(worker_id))
    note(f"Worker {worker_id} finishes what it runs, then it ends.")
