"""`aaiclick dag`: validate, diff, deploy, run and roll back DAGs."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaiclick.api.dags import BackfillStep, DeployResponse
from aaiclick.catalog.errors import DeployError
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.dag_files import load_checked, read_checked
from aaiclick.cli.database import error_headline, format_duration, format_time
from aaiclick.cli.failure_report import report_failure
from aaiclick.cli.jobs import job_json
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import (
    Row,
    output_option,
    print_message,
    print_record,
    print_records,
    print_rows,
    select_fields,
)
from aaiclick.cli.tasks import last_attempt_started_at, task_json
from aaiclick.errors import EXIT_FAILED, RequestError
from aaiclick.store.enums import JobStatus

if TYPE_CHECKING:
    from aaiclick.api.jobs import Job
    from aaiclick.api.tasks import Task
    from aaiclick.client.endpoints import SyncEndpoints

MAX_TASKS = 1_000
"""Maximum number of tasks shown per job."""

FILE_ARGUMENT = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def dag() -> None:
    """Validate, diff, deploy, run and roll back DAGs, from YAML files or Python modules with @dataset functions.

    \b
    aaiclick dag validate orders.yaml
    aaiclick dag deploy orders.yaml
    aaiclick dag run orders
    """


@dag.command("validate")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate_files(files: tuple[Path, ...]) -> None:
    """Validate DAG files; needs no database.

    Functions of python definitions are checked if their modules can be imported here.
    """
    for file in files:
        dag_file, _ = load_checked(file)
        print_message(f"{file} is valid: DAG {dag_file.name}, {len(dag_file.jobs)} definitions.")


@dag.command("render")
@FILE_ARGUMENT
def render_file(file: Path) -> None:
    """Print the datasets of a Python module as a DAG file in YAML."""
    click.echo(read_checked(file), nl=False)


@dag.command("diff")
@FILE_ARGUMENT
@org_option
@output_option
def diff_file(file: Path, org: str, output: str) -> None:
    """Show what deploying a file would change."""
    text = read_checked(file)
    with open_operations(org) as operations:
        changes = operations.diff_dag(text, str(file))
    print_records([change.model_dump() for change in changes], output, empty_message="No changes.")


@dag.command("deploy")
@FILE_ARGUMENT
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until new datasets are filled.")
@org_option
@output_option
def deploy_file(file: Path, wait: bool, org: str, output: str) -> None:
    """Deploy a file as a new version, which starts serving when its new datasets are filled.

    Until then the previous version serves. If no worker is running, this command runs one.
    """
    text = read_checked(file)
    with open_operations(org) as operations:
        done = operations.deploy_dag(text, str(file))
        if wait:
            done = _finish_deploy(operations, done, text, str(file))
    _print_changes(done, output)
    short = done.hash[:12]
    if not done.changed:
        print_message(f"Version {short} is already serving; no changes.")
    elif not done.serves:
        print_message(
            f"Job {done.job_id} fills version {short}. When it has completed, deploy again to start serving it."
        )
    else:
        print_message(
            f"Version {short} is serving. New generations: {', '.join(done.built) or 'none, all data is reused'}."
        )


def _finish_deploy(operations: SyncEndpoints, done: DeployResponse, text: str, file: str) -> DeployResponse:
    """Wait until the new datasets are filled and the version serves with datasets that are up to date."""
    if done.job_id is not None:
        print_message(f"Job {done.job_id} fills the new datasets; the previous version keeps serving meanwhile.")
        ended = _wait_for_job(operations, done.job_id)
        if ended.status != JobStatus.COMPLETED:
            report_failure(ended)
            raise DeployError(
                f"The new datasets are not filled: job {done.job_id} is {ended.status}. "
                f"{error_headline(ended.error)} The previous version is still serving.",
                remedy=f"'aaiclick jobs show {done.job_id}' shows why; deploy again to retry.",
            )
        finished = operations.deploy_dag(text, file, resume=True)
        changed = {"serves": finished.serves, "catch_up_id": finished.catch_up_id}
        done = done.model_copy(update=changed | {"job_id": finished.job_id or done.job_id})
    if done.catch_up_id is not None:
        print_message(f"Version {done.hash[:12]} is serving; job {done.catch_up_id} brings its datasets up to date.")
        ended = _wait_for_job(operations, done.catch_up_id)
        if ended.status != JobStatus.COMPLETED:
            report_failure(ended)
            raise DeployError(
                f"Version {done.hash[:12]} is serving, but its datasets are not up to date: job {done.catch_up_id} "
                f"is {ended.status}.",
                remedy=f"'aaiclick jobs show {done.catch_up_id}' shows why.",
            )
    return done


def _print_changes(done: DeployResponse, output: str) -> None:
    """Print a deploy or rollback: the whole record as JSON, or a table of its changes."""
    record = done.model_dump(mode="json")
    if output == "json":
        print_record(record, output)
    else:
        print_records(record["changes"], output)


@dag.command("versions")
@click.argument("name", required=False)
@org_option
@output_option
def list_versions(name: str | None, org: str, output: str) -> None:
    """List the versions of a DAG or of all DAGs."""
    with open_operations(org) as operations:
        rows = [version.model_dump() for version in operations.list_dag_versions(name)]
    print_rows(rows, output, _version_row, lambda row: select_fields(row, row), empty_message="No DAGs found.")


def _version_row(row: Row) -> Row:
    return {
        "dag": row["dag"],
        "version": row["hash"][:12],
        "created": format_time(row["created_at"]),
        "serving since": format_time(row["serving_since"]),
    }


@dag.command("show")
@click.argument("name")
@org_option
@output_option
def show_definitions(name: str, org: str, output: str) -> None:
    """Show the jobs of the serving version and their states."""
    with open_operations(org) as operations:
        rows = [definition.model_dump() for definition in operations.list_definitions(name)]
    print_rows(rows, output, _definition_row, lambda row: select_fields(row, row))


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
    with open_operations(org) as operations:
        done = operations.roll_back_dag(name, to)
    _print_changes(done, output)
    cancelled_text = f" {done.cancelled} tasks of the replaced version were cancelled." if done.cancelled else ""
    print_message(f"Version {done.hash[:12]} of {name} is serving.{cancelled_text}")
    if done.catch_up_id is not None:
        print_message(f"Job {done.catch_up_id} brings its datasets up to date when a worker is running.")


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
    with open_operations(org) as operations:
        job_id = operations.run_dag(name, job, payload).id
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
    payload = _parse_payload(data)
    with open_operations(org) as operations:
        job_id = operations.run_dag(name, job, payload).id
        print_message(f"Job {job_id} started.")
        ended = _wait_for_job(operations, job_id)
        print_message(f"Job {job_id}: {ended.status}, {ended.total_tasks} tasks.")
        tasks = list(islice(operations.list_tasks(job_id), MAX_TASKS))
    if output == "json":
        print_record(job_json(ended) | {"tasks": [task_json(task) for task in tasks]}, output)
    else:
        print_records([_task_row(task) for task in tasks], output)
    report_failure(ended)
    return EXIT_FAILED if ended.status in (JobStatus.FAILED, JobStatus.CANCELLED) else 0


def _parse_payload(text: str | None) -> object:
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--data is not JSON: {error}.") from None


def _task_row(task: Task) -> Row:
    return {
        "task": str(task.id),
        "job": task.type,
        "partition": ", ".join(task.partitions or ()),
        "status": task.status,
        "duration": format_duration(last_attempt_started_at(task), task.completed_at),
        "output": task.output_summary,
        "error": error_headline(task.error),
    }


@dag.command("backfill")
@click.argument("name")
@click.option("--job", default=None, help="Cron source or partitioned job [default: the only one].")
@click.option("--from", "first", required=True, metavar="START", help="First time or partition.")
@click.option(
    "--to", "last", required=True, metavar="END", help="Last time or partition; a date includes the whole day."
)
@click.option("--dry-run", is_flag=True, help="Only show what would run.")
@click.option("--wait/--no-wait", default=False, show_default=True, help="Wait until the runs have finished.")
@org_option
@output_option
def run_backfill(
    name: str, job: str | None, first: str, last: str, dry_run: bool, wait: bool, org: str, output: str
) -> int:
    """Run the scheduled times or partitions of a range that have not run yet.

    A cron source runs for the times of its schedule, a partitioned job for the partitions of its input. The command
    may be repeated. Sources run one at a time unless overlap is allowed; max_concurrency is respected.
    """
    with open_operations(org) as operations:
        done = operations.backfill_dag(name, first, last, job, dry_run=dry_run)
    if output == "json":
        print_record(done.model_dump(mode="json", exclude={"limit"}), output)
    else:
        print_records([_step_row(step, dry_run) for step in done.steps], output)
    skipped_text = f" {done.before} have run already." if done.before else ""
    if dry_run:
        print_message(f"{done.count} runs of {done.job} would start.{skipped_text}")
    else:
        watch_hint = f" Follow it with: aaiclick jobs show {done.job_ids[0]}" if done.job_ids else ""
        print_message(f"Started {done.count} runs of {done.job}.{skipped_text}{watch_hint}")
    if not wait or dry_run:
        return 0
    with open_operations(org) as operations:
        return EXIT_FAILED if _wait_for_runs(operations, done.job_ids) else 0


def _step_row(step: BackfillStep, dry_run: bool) -> Row:
    state = step.status or ("would run" if dry_run else "started")
    return {"run": step.name, "state": state, "job": step.job_id or ""}


@dag.command("pause")
@click.argument("name")
@org_option
def pause_dag(name: str, org: str) -> None:
    """Pause a DAG: no source and no task starts; running tasks continue."""
    with open_operations(org) as operations:
        operations.pause_dag(name)
    print_message(f"DAG {name} paused. Resume it with: aaiclick dag resume {name}")


@dag.command("resume")
@click.argument("name")
@org_option
def resume_dag(name: str, org: str) -> None:
    """Resume a paused DAG. Missed schedules are handled by each schedule's policy."""
    with open_operations(org) as operations:
        count = operations.resume_dag(name).count
    print_message(f"DAG {name} resumed; {count} tasks were waiting.")


@dag.command("rm")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@org_option
@output_option
def delete_dag(name: str, yes: bool, org: str, output: str) -> None:
    """Delete a DAG with all versions, datasets, rows and jobs. It must have no unfinished jobs.

    It is refused while another DAG reads its datasets. Files that another program writes are left.
    """
    if not yes:
        if not sys.stdin.isatty():
            raise RequestError(
                f"There is no terminal to confirm that the DAG {name!r:.80} is deleted.", remedy="Repeat it with --yes."
            )
        question = f"Delete the DAG {name} permanently, with all versions, datasets, rows and jobs?"
        click.confirm(question, abort=True, err=True)
    with open_operations(org) as operations:
        deleted = operations.delete_dag(name)
    print_record(deleted.model_dump(), output)
    print_message(f"DAG {name} deleted.")


@dag.command("ls")
@org_option
@output_option
def list_dags(org: str, output: str) -> None:
    """List DAGs with the versions that serve."""
    with open_operations(org) as operations:
        versions = operations.list_dag_versions(None)
    rows: dict[str, Row] = {}
    for version in versions:
        row = rows.setdefault(version.dag, {"dag": version.dag, "version": "", "serving since": "", "versions": 0})
        row["versions"] += 1
        if version.serving_since is not None:
            row |= {"version": version.hash[:12], "serving since": format_time(version.serving_since)}
    records = [{name.replace(" ", "_"): value for name, value in row.items()} for row in rows.values()]
    hint = "No DAGs found. Deploy one with: aaiclick dag deploy FILE"
    print_records(records if output == "json" else list(rows.values()), output, empty_message=hint)


def _wait_for_job(operations: SyncEndpoints, job_id: int) -> Job:
    return importlib.import_module("aaiclick.cli.watch").wait_for_job(operations, job_id)  # slow import: the worker


def _wait_for_runs(operations: SyncEndpoints, job_ids: Sequence[int]) -> int:
    return importlib.import_module("aaiclick.cli.watch").wait_for_runs(operations, job_ids)  # slow import: the worker
