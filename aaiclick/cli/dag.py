"""`aaiclick dag`: validate, diff, deploy, run and roll back DAGs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import click

from aaiclick.catalog import backfill as backfills
from aaiclick.catalog import deploy as deploys
from aaiclick.catalog.dags.diff_format import format_changes
from aaiclick.catalog.dags.load import load_dag_file
from aaiclick.catalog.errors import DeployError
from aaiclick.catalog.task_summary import summarize_outputs
from aaiclick.cli import remote
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.audit import audited_call_local_or_remote, audited_transaction, write_audit
from aaiclick.cli.clickhouse_client import connect_clickhouse
from aaiclick.cli.database import error_headline, find_org_id, format_duration, format_time
from aaiclick.cli.jobs import find_job, job_json
from aaiclick.cli.output import (
    Row,
    output_option,
    print_message,
    print_record,
    print_records,
    print_rows,
    select_fields,
)
from aaiclick.cli.remote import call_local_or_remote, checked_client
from aaiclick.cli.tasks import task_json
from aaiclick.cli.watch import watch_job
from aaiclick.client import requests
from aaiclick.errors import EXIT_FAILED, NotFoundError
from aaiclick.orchestration import JobStatus, OrchContext
from aaiclick.store.catalog import dag_versions, sources
from aaiclick.store.engine import queries

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.connections import Connection

MAX_TASKS = 1_000
"""Maximum number of tasks shown per job."""

FILE_ARGUMENT = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def dag() -> None:
    """Validate, diff, deploy, run and roll back DAGs."""


@dag.command("validate")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate_files(files: tuple[Path, ...]) -> None:
    """Validate DAG files; needs no database."""
    for file in files:
        dag_file = load_dag_file(file)
        print_message(f"{file} is valid: DAG {dag_file.name}, {len(dag_file.jobs)} jobs.")


@dag.command("diff")
@FILE_ARGUMENT
@org_option
@output_option
def diff_file(file: Path, org: str, output: str) -> None:
    """Show what deploying a file would change."""
    text = _read_checked(file)

    async def diff_local(connection: Connection) -> list[Row]:
        dag_diff = await deploys.diff_with_serving(
            connection, text, str(file), org_id=await find_org_id(connection, org)
        )
        return [dict(change) for change in format_changes(dag_diff)]

    changes = call_local_or_remote(diff_local, lambda client: checked_client(client, org).diff_dag(text, str(file)))
    print_records(changes, output, empty_message="No changes.")


@dag.command("deploy")
@FILE_ARGUMENT
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until new datasets are filled.")
@org_option
@output_option
def deploy_file(file: Path, wait: bool, org: str, output: str) -> None:
    """Deploy a file as a new version, which starts serving when its new datasets are filled.

    Until then the previous version serves. If no worker is running, this command runs one.
    """
    text = _read_checked(file)
    if remote.is_remote():
        with remote.open_client() as client:
            done = _deploy_remote(checked_client(client, org), text, str(file), wait)
    else:
        done = _deploy_record(asyncio.run(_deploy_local(text, str(file), wait, org)))
    _print_changes(done, output)
    short = done["hash"][:12]
    if not done["changed"]:
        print_message(f"Version {short} is already serving; no changes.")
    elif not done["serves"]:
        print_message(
            f"Job {done['job_id']} fills version {short}. When it has completed, deploy again to start serving it."
        )
    else:
        print_message(
            f"Version {short} is serving. New generations: {', '.join(done['built']) or 'none, all data is reused'}."
        )


def _deploy_record(done: deploys.DeployResult) -> Row:
    """Return a deploy in the format of the API."""
    return {
        "dag": done.dag_name,
        "version_id": str(done.version_id),
        "hash": done.version_hash,
        "changed": done.changed,
        "serves": done.serves,
        "built": list(done.built),
        "cancelled": done.cancelled,
        "job_id": _text_id(done.job_id),
        "catch_up_id": _text_id(done.catch_up_id),
        "changes": format_changes(done.diff),
    }


def _print_changes(done: Row, output: str) -> None:
    """Print a deploy or rollback: the whole record as JSON, or a table of its changes."""
    if output == "json":
        print_record(done, output)
    else:
        print_records(done["changes"], output)


def _text_id(value: int | None) -> str | None:
    return None if value is None else str(value)


def _deploy_remote(client: Client, text: str, file: str, wait: bool) -> Row:
    done = client.deploy_dag(text, file)
    if done["job_id"] is None or not wait:
        return _await_catch_up_remote(client, done, wait)
    print_message(f"Job {done['job_id']} fills the new datasets; the previous version keeps serving meanwhile.")
    ended = remote.watch_job(client, int(done["job_id"]))
    if ended["status"] != JobStatus.COMPLETED.value:
        raise DeployError(
            f"The new datasets are not filled: job {done['job_id']} is {ended['status']}. "
            f"{error_headline(ended['error'])} The previous version is still serving.",
            remedy=f"'aaiclick jobs show {done['job_id']}' shows why; deploy again to retry.",
        )
    finished = client.deploy_dag(text, file, resume=True)
    updated_fields = ("serves", "catch_up_id")
    done |= {name: finished[name] for name in updated_fields} | {"job_id": finished["job_id"] or done["job_id"]}
    return _await_catch_up_remote(client, done, wait)


def _await_catch_up_remote(client: Client, done: Row, wait: bool) -> Row:
    if done["catch_up_id"] is not None and wait:
        print_message(_catch_up_message(done))
        _check_caught_up(done, remote.watch_job(client, int(done["catch_up_id"]))["status"])
    return done


def _catch_up_message(done: Row) -> str:
    return f"Version {done['hash'][:12]} is serving; job {done['catch_up_id']} brings its datasets up to date."


def _check_caught_up(done: Row, status: str) -> None:
    if status != JobStatus.COMPLETED.value:
        raise DeployError(
            f"Version {done['hash'][:12]} is serving, but its datasets are not up to date: job {done['catch_up_id']} "
            f"is {status}.",
            remedy=f"'aaiclick jobs show {done['catch_up_id']}' shows why.",
        )


async def _deploy_local(text: str, file: str, wait: bool, org: str) -> deploys.DeployResult:
    async with OrchContext() as context, context.connection() as connection:
        org_id = await find_org_id(connection, org)
        async with audited_transaction(connection):
            done = await deploys.deploy(connection, text, file, org_id=org_id)
            await write_audit(connection, org_id, "dag.deploy", done.dag_name, {"version": done.version_hash})
        if done.job_id is not None and wait:
            print_message(f"Job {done.job_id} fills the new datasets; the previous version keeps serving meanwhile.")
            await watch_job(context, done.job_id)
            done = await deploys.finish_deploy(connection, done, org_id=org_id)
        if done.catch_up_id is not None and wait:
            print_message(_catch_up_message(_deploy_record(done)))
            await watch_job(context, done.catch_up_id)
            ended = await queries.get_job(connection, done.catch_up_id)
            _check_caught_up(_deploy_record(done), ended["status"] if ended is not None else JobStatus.COMPLETED.value)
        return done


@dag.command("versions")
@click.argument("name", required=False)
@org_option
@output_option
def list_versions(name: str | None, org: str, output: str) -> None:
    """List the versions of a DAG or of all DAGs."""

    async def list_local(connection: Connection) -> list[Row]:
        rows = await dag_versions.list_versions(connection, await find_org_id(connection, org), name)
        if name is not None and not rows:
            raise NotFoundError(f"There is no DAG {name!r:.60}.", remedy="'aaiclick dag versions' lists them.")
        return [dict(row) | {"dag": row["dag_name"], "hash": row["yaml_hash"]} for row in rows]

    rows = call_local_or_remote(
        list_local, lambda client: remote.parse_rows(checked_client(client, org).dag_versions(name))
    )
    print_rows(rows, output, _version_row, _version_json, empty_message="No DAGs found.")


def _version_row(row: Row) -> Row:
    return {
        "dag": row["dag"],
        "version": row["hash"][:12],
        "created": format_time(row["created_at"]),
        "serving since": format_time(row["serving_since"]),
    }


def _version_json(row: Row) -> Row:
    return select_fields(row, ("id", "dag", "hash", "created_at", "ready_at", "serving_since"))


@dag.command("show")
@click.argument("name")
@org_option
@output_option
def show_definitions(name: str, org: str, output: str) -> None:
    """Show the jobs of the serving version and their states."""

    async def list_local(connection: Connection) -> list[Row]:
        definitions = await sources.list_definitions(connection, await find_org_id(connection, org), name)
        return [dict(row) for row in definitions]

    def list_remote(client: Client) -> list[Row]:
        return remote.parse_rows(
            checked_client(client, org).call(requests.get(requests.build_path("dags", name, "definitions")))
        )

    print_rows(
        call_local_or_remote(list_local, list_remote),
        output,
        _definition_row,
        lambda row: select_fields(row, DEFINITION_FIELDS),
    )


DEFINITION_FIELDS = (
    "name", "activation", "operator", "source", "status", "next_run_at", "last_event_at", "last_heartbeat", "paused_at",
)  # fmt: skip


def _definition_row(row: Row) -> Row:
    return {
        "job": row["name"],
        "trigger": row["source"] or "dataset updates",
        "state": f"{row['status']} (paused)" if row["paused_at"] else row["status"],
        "next run": format_time(row["next_run_at"]),
        "last event": format_time(row["last_event_at"]),
        "heartbeat": format_time(row["last_heartbeat"]),
    }


@dag.command("rollback")
@click.argument("name")
@click.option("--to", metavar="HASH", help="Version to roll back to [default: the previous one].")
@org_option
@output_option
def roll_back_dag(name: str, to: str | None, org: str, output: str) -> None:
    """Roll back to an older version with its data; its datasets are then brought up to date."""

    async def roll_back_local(connection: Connection) -> Row:
        org_id = await find_org_id(connection, org)
        async with audited_transaction(connection):
            done = await deploys.roll_back(connection, name, to, org_id=org_id)
            await write_audit(connection, org_id, "dag.rollback", name, {"version": done.version_hash})
        return _deploy_record(done)

    done = call_local_or_remote(roll_back_local, lambda client: checked_client(client, org).roll_back_dag(name, to))
    _print_changes(done, output)
    cancelled_text = f" {done['cancelled']} tasks of the replaced version were cancelled." if done["cancelled"] else ""
    print_message(f"Version {done['hash'][:12]} of {name} is serving.{cancelled_text}")
    if done["catch_up_id"] is not None:
        print_message(f"Job {done['catch_up_id']} brings its datasets up to date when a worker is running.")


JOB_OPTION = click.option("--job", default=None, help="Source to start [default: the only one].")
DATA_OPTION = click.option("--data", default=None, metavar="JSON", help="Payload of the event.")


@dag.command("trigger")
@click.argument("name")
@JOB_OPTION
@DATA_OPTION
@org_option
@output_option
def trigger_source(name: str, job: str | None, data: str | None, org: str, output: str) -> None:
    """Start a source of a DAG without waiting."""
    payload = _parse_payload(data)

    async def trigger_local(connection: Connection) -> int:
        return await _start_source(connection, await find_org_id(connection, org), name, job, payload)

    job_id = call_local_or_remote(trigger_local, lambda client: checked_client(client, org).run_dag(name, job, payload))
    print_record({"job": str(job_id)}, output)
    print_message(f"Follow it with: aaiclick jobs show {job_id}")


@dag.command("run")
@click.argument("name")
@JOB_OPTION
@DATA_OPTION
@org_option
@output_option
def run_dag(name: str, job: str | None, data: str | None, org: str, output: str) -> int:
    """Start a source of a DAG and wait until all resulting tasks have finished.

    If no worker is running, this command runs one. Exit code 1 if a task fails.
    """
    if remote.is_remote():
        with remote.open_client() as client:
            ended, tasks = _run_remote(checked_client(client, org), name, job, _parse_payload(data))
    else:
        ended, tasks = asyncio.run(_run_local(name, job, _parse_payload(data), org))
    if output == "json":
        print_record(job_json(ended) | {"tasks": [task_json(row) for row in tasks]}, output)
    else:
        print_records([_task_row(row) for row in tasks], output)
    return EXIT_FAILED if ended["status"] in (JobStatus.FAILED.value, JobStatus.CANCELLED.value) else 0


async def _run_local(name: str, job: str | None, payload: object, org: str) -> tuple[Row, list[Row]]:
    """Run a source locally; return the finished job and its tasks."""
    async with OrchContext() as context, context.connection() as connection:
        org_id = await find_org_id(connection, org)
        job_id = await _start_source(connection, org_id, name, job, payload)
        print_message(f"Job {job_id} started.")
        await watch_job(context, job_id)
        ended = dict(await find_job(connection, job_id))
        rows = await queries.list_tasks_of_job(connection, org_id, job_id, limit=MAX_TASKS)
        print_message(f"Job {job_id}: {ended['status']}, {ended['total_tasks']} tasks.")
        return ended, [dict(row) | {"output_summary": summarize_outputs(row["outputs"])} for row in rows]


def _run_remote(client: Client, name: str, job: str | None, payload: object) -> tuple[Row, list[Row]]:
    job_id = client.run_dag(name, job, payload).id
    print_message(f"Job {job_id} started.")
    ended = remote.watch_job(client, job_id)
    print_message(f"Job {job_id}: {ended['status']}, {ended['total_tasks']} tasks.")
    return ended, remote.dump_rows(client.list_tasks(job_id), MAX_TASKS)


async def _start_source(connection: Connection, org_id: UUID, name: str, job: str | None, payload: object) -> int:
    event = {"kind": "manual"} if payload is None else {"kind": "manual", "payload": payload}
    async with audited_transaction(connection):
        job_id, _ = await sources.start_source(connection, org_id, name, job, event)
        await write_audit(connection, org_id, "dag.run", name, {"job": str(job_id)})
    return job_id


def _parse_payload(text: str | None) -> object:
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--data is not JSON: {error}.") from None


def _task_row(row: Row) -> Row:
    return {
        "task": str(row["id"]),
        "job": row["type"],
        "partition": ", ".join(row["partitions"] or ()),
        "status": row["status"],
        "duration": format_duration(row["started_at"], row["completed_at"]),
        "output": row["output_summary"],
        "error": error_headline(row["error"]),
    }


@dag.command("backfill")
@click.argument("name")
@click.option("--job", default=None, help="Cron source or partitioned job [default: the only one].")
@click.option("--from", "first", required=True, metavar="START", help="First time or partition.")
@click.option(
    "--to", "last", required=True, metavar="END", help="Last time or partition; a date includes the whole day."
)
@click.option("--dry-run", is_flag=True, help="Only show what would run.")
@org_option
@output_option
def run_backfill(name: str, job: str | None, first: str, last: str, dry_run: bool, org: str, output: str) -> None:
    """Run the scheduled times or partitions of a range that have not run yet.

    A cron source runs for the times of its schedule, a partitioned job for the partitions of its input. The command
    may be repeated. Sources run one at a time unless overlap is allowed; max_concurrency is respected.
    """

    async def backfill_local(connection: Connection) -> Row:
        org_id = await find_org_id(connection, org)
        plan = await backfills.plan_backfill(
            connection, lambda: connect_clickhouse(org_id), org_id, name, job, first, last
        )
        if dry_run:
            return _backfill_record(plan, [])
        async with audited_transaction(connection):
            jobs = await backfills.start_backfill(connection, plan)
            detail = {"source": plan.job_name, "from": first, "to": last, "runs": len(plan.to_run)}
            await write_audit(connection, org_id, "dag.backfill", name, detail)
        return _backfill_record(plan, jobs)

    done = call_local_or_remote(
        backfill_local, lambda client: checked_client(client, org).backfill_dag(name, first, last, job, dry_run=dry_run)
    )
    if output == "json":
        print_record(done, output)
    else:
        print_records([_step_row(step, dry_run) for step in done["steps"]], output)
    skipped_text = f" {done['before']} have run already." if done["before"] else ""
    if dry_run:
        print_message(f"{done['count']} runs of {done['job']} would start.{skipped_text}")
    else:
        watch_hint = f" Follow it with: aaiclick jobs show {done['job_ids'][0]}" if done["job_ids"] else ""
        print_message(f"Started {done['count']} runs of {done['job']}.{skipped_text}{watch_hint}")


def _backfill_record(plan: backfills.BackfillPlan, jobs: list[int]) -> Row:
    """Return a backfill in the format of the API."""
    return {
        "job": plan.job_name,
        "count": len(plan.to_run),
        "before": len(plan.steps) - len(plan.to_run),
        "steps": [{"name": step.name, "status": step.status, "job_id": _text_id(step.job_id)} for step in plan.steps],
        "job_ids": [str(job_id) for job_id in jobs],
    }


def _step_row(step: Row, dry_run: bool) -> Row:
    state = step["status"] or ("would run" if dry_run else "started")
    return {"run": step["name"], "state": state, "job": step["job_id"] or ""}


@dag.command("pause")
@click.argument("name")
@org_option
def pause_dag(name: str, org: str) -> None:
    """Pause a DAG: no source and no task starts; running tasks continue."""
    audited_call_local_or_remote(org, "dag.pause", name, _pause_local, lambda client: client.pause_dag(name))
    print_message(f"DAG {name} paused. Resume it with: aaiclick dag resume {name}")


@dag.command("resume")
@click.argument("name")
@org_option
def resume_dag(name: str, org: str) -> None:
    """Resume a paused DAG. Missed schedules are handled by each schedule's policy."""
    count = audited_call_local_or_remote(
        org, "dag.resume", name, _resume_local, lambda client: client.resume_dag(name).count
    )
    print_message(f"DAG {name} resumed; {count} tasks were waiting.")


async def _pause_local(connection: Connection, name: str, org_id: UUID) -> None:
    await sources.pause_dag(connection, org_id, name)


async def _resume_local(connection: Connection, name: str, org_id: UUID) -> int:
    return await sources.resume_dag(connection, org_id, name)


def _read_checked(file: Path) -> str:
    """Validate a DAG file and return its text, so that errors are reported before connecting to a database."""
    load_dag_file(file)
    return file.read_text(encoding="utf-8-sig")
