"""`aaiclick schedules`: schedules of jobs and queue items."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import get_args

import click

from aaiclick.api.dags import BackfillStep
from aaiclick.api.field_types import parse_fields
from aaiclick.api.schedules import MissedPolicy, OverlapPolicy, Schedule, ScheduleRequest, ScheduleRun, ScheduleState
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.database import error_headline, format_time
from aaiclick.cli.entrypoint_import import load_target, split_entrypoint
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import (
    Row,
    output_option,
    print_message,
    print_model,
    print_models,
    print_record,
    print_records,
)
from aaiclick.cli.param_types import ARGUMENT, NAME
from aaiclick.cron import format_interval
from aaiclick.errors import EXIT_FAILED
from aaiclick.orchestration.decorators import JobFunction
from aaiclick.orchestration.gateway.schedule_requests import make_schedule_request
from aaiclick.orchestration.schedule_spec import ScheduleSpec
from aaiclick.orchestration.schedules import check_name, find_declared_schedules, make_schedule
from aaiclick.tracebacks import report_user_errors


@click.group()
def schedules() -> None:
    """List, create, pause, fire and backfill schedules.

    \b
    aaiclick schedules add nightly shop.jobs.nightly --cron '0 3 * * *'
    aaiclick schedules backfill nightly --from 2026-01-01 --to 2026-01-31 --dry-run
    """


@schedules.command("ls")
@click.option("--state", type=click.Choice(get_args(ScheduleState)), help="Only schedules in this state.")
@org_option
@output_option
def list_schedules(state: ScheduleState | None, org: str, output: str) -> None:
    """List schedules by name."""
    with open_operations(org) as operations:
        listed = operations.list_schedules(state=state)
        print_models(listed, output, _table_row, empty_message="No schedules found.")


@schedules.command("show")
@click.argument("name")
@org_option
@output_option
def show_schedule(name: str, org: str, output: str) -> None:
    """Show a schedule with its next times and its last runs."""
    with open_operations(org) as operations:
        shown = operations.get_schedule(name)
    print_model(shown, output, _table_row)
    if output == "json":
        return
    if shown.error:
        print_message(shown.error)
    click.echo()
    print_records([{"next times": format_time(time)} for time in shown.next_runs], output, empty_message="No next run.")
    click.echo()
    print_records([_run_row(run) for run in shown.runs], output, empty_message="No runs yet.")


@schedules.command("add")
@click.argument("name", type=NAME)
@click.argument("entrypoint", required=False)
@click.option("--item", "item_type", type=NAME, help="Enqueue an item of this type instead of starting a job.")
@click.option("--cron", help="Cron expression of five fields, such as '0 3 * * *'.")
@click.option("--every", help="Interval, such as 30s, 5m, 2h or 1d.")
@click.option("--timezone", default="UTC", show_default=True, help="Time zone of the cron expression.")
@click.option("--missed", type=click.Choice(get_args(MissedPolicy)), default="latest", show_default=True,
              help="After an outage: skip missed runs, run the latest, or run all.")  # fmt: skip
@click.option("--max-missed", type=click.IntRange(1, 10_000), default=100, show_default=True,
              help="With --missed all, most runs to catch up.")  # fmt: skip
@click.option("--overlap", type=click.Choice(get_args(OverlapPolicy)), default="queue", show_default=True,
              help="While a run has not finished: start others too, queue, skip or cancel it.")  # fmt: skip
@click.option("--arg", "pairs", type=ARGUMENT, multiple=True, metavar="NAME=VALUE",
              help="An argument; VALUE is JSON or plain text.")  # fmt: skip
@click.option("--nominal", "nominal_parameter", type=NAME, help="Parameter that receives the nominal time.")
@click.option("--replace", is_flag=True, help="Replace a schedule of the same name.")
@org_option
@output_option
def add_schedule(
    name: str, entrypoint: str | None, pairs: tuple[tuple[str, object], ...], org: str, output: str, **fields: object
) -> None:
    """Create a schedule: ENTRYPOINT is package.module.function, a @job.

    If the module can be imported here, the arguments are checked, and the parameter of the nominal time is found.
    """
    check_name(name)
    if (fields.get("cron") is None) == (fields.get("every") is None):
        raise click.UsageError("Give --cron or --every, such as --every 5m.")
    fields = {key: value for key, value in fields.items() if value is not None}
    request = parse_fields(ScheduleRequest, {"name": name, "entrypoint": entrypoint, "kwargs": dict(pairs), **fields})
    target = None if entrypoint is None else _find_job_function(entrypoint)
    if target is not None:
        spec = ScheduleSpec.parse(
            request.cron, request.every, timezone=request.timezone, missed=request.missed,
            max_missed=request.max_missed, overlap=request.overlap,
        )  # fmt: skip
        new = make_schedule(target, spec, name=name, arguments=dict(pairs))
        request = make_schedule_request(new, replace=request.replace)
    with open_operations(org) as operations:
        created = operations.create_schedule(request)
    print_model(created, output, _table_row)


def _find_job_function(entrypoint: str) -> JobFunction[...] | None:
    """The @job of an entry point; None if it is another function, or only workers can import it."""
    sys.path.insert(0, str(Path.cwd()))
    module, _ = split_entrypoint(entrypoint)
    with report_user_errors(f"The import of {module}", "Correct the file and run the command again."):
        try:
            importlib.import_module(module)
        except ImportError:
            return None
    target = load_target(entrypoint)
    return target if isinstance(target, JobFunction) else None


@schedules.command("pause")
@click.argument("name")
@org_option
def pause_schedule(name: str, org: str) -> None:
    """Pause a schedule: no run of it starts; running jobs continue."""
    with open_operations(org) as operations:
        operations.pause_schedule(name)
    print_message(f"Schedule {name} paused. Resume it with: aaiclick schedules resume {name!r}")


@schedules.command("resume")
@click.argument("name")
@org_option
def resume_schedule(name: str, org: str) -> None:
    """Resume a paused schedule. Runs that were missed follow its policy."""
    with open_operations(org) as operations:
        operations.resume_schedule(name)
    print_message(f"Schedule {name} resumed.")


@schedules.command("fire")
@click.argument("name")
@click.option("--nominal", help="Nominal time of the run [default: now].")
@org_option
def fire_schedule(name: str, nominal: str | None, org: str) -> None:
    """Start a run of a schedule now, also of a paused one."""
    with open_operations(org) as operations:
        run_id = operations.fire_schedule(name, nominal).id
        is_item = operations.get_schedule(name).item_type is not None
    print_message(f"Started {run_id}. Show it with: aaiclick {'tasks' if is_item else 'jobs'} show {run_id}")


@schedules.command("backfill")
@click.argument("name")
@click.option("--from", "first", required=True, metavar="START", help="First time.")
@click.option("--to", "last", required=True, metavar="END", help="Last time; a date includes the whole day.")
@click.option("--dry-run", is_flag=True, help="Only show what would run.")
@click.option("--wait/--no-wait", default=False, show_default=True, help="Wait until the runs have finished.")
@org_option
@output_option
def backfill_schedule(name: str, first: str, last: str, dry_run: bool, wait: bool, org: str, output: str) -> int:
    """Start the runs of past nominal times in a range that have not run yet. The command may be repeated."""
    with open_operations(org) as operations:
        done = operations.backfill_schedule(name, first, last, dry_run=dry_run)
    if output == "json":
        print_record(done.model_dump(mode="json", exclude={"limit"}), output)
    else:
        print_records([_step_row(step, dry_run) for step in done.steps], output)
    skipped_text = f" {done.before} have run already." if done.before else ""
    print_message(f"{done.count} runs {'would start' if dry_run else 'started'}.{skipped_text}")
    if not wait or dry_run:
        return 0
    watch = importlib.import_module("aaiclick.cli.watch")  # slow import: the worker
    with open_operations(org) as operations:
        return EXIT_FAILED if watch.wait_for_runs(operations, done.job_ids) else 0


@schedules.command("rm")
@click.argument("name")
@org_option
def remove_schedule(name: str, org: str) -> None:
    """Delete a schedule; its jobs continue."""
    with open_operations(org) as operations:
        operations.delete_schedule(name)
    print_message(f"Schedule {name} deleted.")


@schedules.command("sync")
@click.argument("module")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@org_option
@output_option
def sync_schedules(module: str, dry_run: bool, org: str, output: str) -> None:
    """Make the schedules of MODULE those that its @job functions declare.

    Schedules of functions that are gone are stopped and marked as missing. Schedules created at run time stay.
    """
    sys.path.insert(0, str(Path.cwd()))
    declared = [make_schedule_request(new) for new in find_declared_schedules(module)]
    with open_operations(org) as operations:
        result = operations.sync_schedules(module, declared, dry_run=dry_run)
    changes = result.model_dump()
    if output == "json":
        print_record(changes, output)
        return
    rows = [{"schedule": name, "change": change} for change, names in changes.items() for name in names]
    print_records(rows, output, empty_message=f"{module} declares no schedules.")
    if dry_run:
        print_message("Nothing was changed.")


def _table_row(schedule: Schedule) -> Row:
    every = "" if schedule.every_seconds is None else f"every {format_interval(schedule.every_seconds)}"
    return {
        "name": schedule.name,
        "state": schedule.state,
        "starts": schedule.entrypoint or schedule.item_type,
        "times": schedule.cron or every,
        "timezone": schedule.timezone,
        "next run": format_time(schedule.next_run_at),
        "last run": format_time(schedule.last_nominal_at),
        "status": schedule.last_run_status or "",
        "error": error_headline(schedule.error),
    }


def _run_row(run: ScheduleRun) -> Row:
    return {
        "job": run.id,
        "status": run.status,
        "nominal time": format_time(run.nominal_at),
        "cause": run.cause,
        "created": format_time(run.created_at),
        "completed": format_time(run.completed_at),
    }


def _step_row(step: BackfillStep, dry_run: bool) -> Row:
    state = step.status or ("would run" if dry_run else "started")
    return {"run": step.name, "state": state, "job": step.job_id or ""}
