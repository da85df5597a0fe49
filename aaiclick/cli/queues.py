"""`aaiclick queues` and `aaiclick workers`: list and manage queues and workers."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from aaiclick.api.workers import LimitsRequest
from aaiclick.cli import remote
from aaiclick.cli.api_keys import every_org_option, org_option
from aaiclick.cli.audit import audited_transaction, write_audit
from aaiclick.cli.database import find_org_id, format_time
from aaiclick.cli.limit_options import limit_options
from aaiclick.cli.operations import open_operations
from aaiclick.cli.output import Row, output_option, print_message, print_rows, select_fields
from aaiclick.cli.param_types import ID
from aaiclick.cli.remote import call_local_or_remote
from aaiclick.settings import get_settings
from aaiclick.store.engine import queries, queue
from aaiclick.store.engine.workers import worker_state
from aaiclick.store.enums import DEFAULT_ORG_ID, WorkerStatus

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.connections import Connection

DEPTH_FIELDS = ("ready", "scheduled", "blocked", "held", "running")
LIMIT_FIELDS = ("max_running", "rate_per_second", "rate_burst", "weight")
WORKER_FIELDS = (
    "id", "status", "hostname", "pid", "queues", "pool_size", "is_leader", "version", "started_at", "last_heartbeat",
    "drain_requested_at", "stopped_at", "tasks_completed", "tasks_failed",
)  # fmt: skip


@click.group()
def queues() -> None:
    """Show, limit, pause and resume queues."""


@queues.command("ls")
@every_org_option
@output_option
def list_queues(org: str | None, output: str) -> None:
    """List queues with the number of tasks per state."""

    async def list_local(connection: Connection) -> list[Row]:
        org_id = None if org is None else await find_org_id(connection, org)
        depth_rows = await queries.load_queue_depths(connection, org_id)
        return [dict(row) | {"name": row["queue"], "weight": row["weight"] or 1} for row in depth_rows]

    def list_remote(client: Client) -> list[Row]:
        own_slug = remote.find_own_org(client, org)
        return [row | {"org": own_slug} for row in remote.dump_rows(client.list_queues())]

    empty_message = "No queues with tasks or settings found."
    print_rows(
        call_local_or_remote(list_local, list_remote), output, _table_row, _json_record, empty_message=empty_message
    )


@queues.command("set")
@click.argument("name")
@limit_options
@org_option
def set_queue_limits(name: str, limits: LimitsRequest, org: str) -> None:
    """Set the weight and limits of a queue; limits that are not given are removed."""
    with open_operations(org) as operations:
        operations.set_queue_limits(name, limits)
    options = ", ".join(f"{option} {value}" for option, value in limits.model_dump(exclude_none=True).items())
    print_message(f"Queue {name!r} has {options}.")


@queues.command("pause")
@click.argument("name")
@org_option
def pause_queue(name: str, org: str) -> None:
    """Pause a queue: no further tasks start."""
    with open_operations(org) as operations:
        operations.pause_queue(name)
    print_message(f"Queue {name!r} paused. Resume it with: aaiclick queues resume {name}")


@queues.command("resume")
@click.argument("name")
@org_option
def resume_queue(name: str, org: str) -> None:
    """Resume a paused queue."""
    with open_operations(org) as operations:
        operations.resume_queue(name)
    print_message(f"Queue {name!r} resumed.")


def _json_record(row: Row) -> Row:
    return select_fields(row, ("org", "name", *DEPTH_FIELDS, *LIMIT_FIELDS, "paused_at"))


def _table_row(row: Row) -> Row:
    values = {name: row[name] for name in (*DEPTH_FIELDS, *LIMIT_FIELDS)}
    return {"org": row["org"], "queue": row["name"], **values, "paused": format_time(row["paused_at"])}


@click.group()
def workers() -> None:
    """List and drain workers."""


@workers.command("ls")
@click.option("--all", "everything", is_flag=True, help="Include stopped workers.")
@output_option
def list_workers(everything: bool, output: str) -> None:
    """List worker processes."""

    async def list_local(connection: Connection) -> list[Row]:
        worker_list = await queue.list_workers(connection)
        return [asdict(worker) for worker in worker_list if everything or worker.status != WorkerStatus.STOPPED]

    rows = call_local_or_remote(list_local, lambda client: remote.dump_rows(client.list_workers(stopped=everything)))
    hint = "" if everything else " Stopped workers are listed with --all."
    empty_message = f"No workers found. Start one with: aaiclick worker start.{hint}"
    print_rows(rows, output, _worker_row, _worker_json, empty_message=empty_message)


def _worker_json(row: Row) -> Row:
    return select_fields(row, WORKER_FIELDS)


def _worker_row(row: Row) -> Row:
    return {
        "id": str(row["id"]),
        "status": worker_state(
            row["status"], row["last_heartbeat"], timeout_seconds=get_settings().worker_timeout_seconds
        ),
        "host": row["hostname"],
        "pid": row["pid"],
        "slots": row["pool_size"],
        "leader": "yes" if row["is_leader"] else "",
        "draining": "yes" if row["drain_requested_at"] and not row["stopped_at"] else "",
        "heartbeat": format_time(row["last_heartbeat"]),
        "version": row["version"],
    }


@workers.command("drain")
@click.argument("worker_id", type=ID)
def drain_worker(worker_id: int) -> None:
    """Drain a worker: it finishes its tasks, then stops."""

    async def drain_local(connection: Connection) -> None:
        async with audited_transaction(connection):
            await queue.drain_worker(connection, worker_id)
            await write_audit(connection, DEFAULT_ORG_ID, "worker.drain", str(worker_id))

    call_local_or_remote(drain_local, lambda client: client.drain_worker(worker_id))
    print_message(f"Worker {worker_id} is draining. It finishes its tasks, then stops.")
