"""`aaiclick queues` and `aaiclick workers`: list and manage queues and workers."""

from __future__ import annotations

import click

from aaiclick.api.workers import LimitsRequest, Queue, Worker
from aaiclick.cli.api_keys import every_org_option, org_option
from aaiclick.cli.database import format_time
from aaiclick.cli.limit_options import limit_options
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import Row, output_option, print_message, print_models
from aaiclick.cli.param_types import WORKER_ID
from aaiclick.settings import get_settings
from aaiclick.store.engine.workers import worker_state


@click.group()
def queues() -> None:
    """Show, limit, pause and resume queues.

    \b
    aaiclick queues ls
    aaiclick queues pause default
    """


@queues.command("ls")
@every_org_option
@output_option
def list_queues(org: str | None, output: str) -> None:
    """List queues with the number of tasks per state."""
    with open_operations(org) as operations:
        listed = operations.list_queues()
    print_models(listed, output, _table_row, empty_message="No queues with tasks or settings found.")


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


def _table_row(queue: Queue) -> Row:
    counts = queue.model_dump(include={"ready", "scheduled", "blocked", "held", "running"})
    limits = queue.model_dump(include={"max_running", "rate_per_second", "rate_burst", "weight"})
    return {"org": queue.org, "queue": queue.name, **counts, **limits, "paused": format_time(queue.paused_at)}


@click.group()
def workers() -> None:
    """List and drain workers.

    \b
    aaiclick workers ls
    aaiclick workers drain 3814059377
    """


@workers.command("ls")
@click.option("--all", "everything", is_flag=True, help="Include stopped workers.")
@output_option
def list_workers(everything: bool, output: str) -> None:
    """List worker processes."""
    with open_operations() as operations:
        listed = list(operations.list_workers(stopped=everything))
    hint = "" if everything else " Stopped workers are listed with --all."
    empty_message = f"No workers found. Start one with: aaiclick worker start.{hint}"
    print_models(listed, output, _worker_row, empty_message=empty_message)


def _worker_row(worker: Worker) -> Row:
    timeout_seconds = get_settings().worker_timeout_seconds
    return {
        "id": str(worker.id),
        "status": worker_state(worker.status, worker.last_heartbeat, timeout_seconds=timeout_seconds),
        "host": worker.hostname,
        "pid": worker.pid,
        "slots": worker.pool_size,
        "leader": "yes" if worker.is_leader else "",
        "draining": "yes" if worker.is_draining else "",
        "heartbeat": format_time(worker.last_heartbeat),
        "version": worker.version,
        "code": worker.code_version or "",
    }


@workers.command("drain")
@click.argument("worker_id", type=WORKER_ID)
def drain_worker(worker_id: int) -> None:
    """Drain a worker: it finishes its tasks, then stops."""
    with open_operations() as operations:
        operations.drain_worker(worker_id)
    print_message(f"Worker {worker_id} is draining. It finishes its tasks, then stops.")
