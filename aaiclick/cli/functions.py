"""`aaiclick functions`: the `@job`s that workers have registered."""

from __future__ import annotations

import json

import click

from aaiclick.api.job_functions import FunctionRun, JobFunction
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.database import format_time
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import Row, output_option, print_message, print_model, print_models, print_records
from aaiclick.cli.param_types import ARGUMENT
from aaiclick.orchestration.parameter_schema_text import describe_type


@click.group()
def functions() -> None:
    """List and run the @job functions that workers have registered.

    \b
    aaiclick functions ls
    aaiclick functions run shop.jobs.nightly --arg day=2026-01-01
    """


@functions.command("ls")
@org_option
@output_option
def list_functions(org: str, output: str) -> None:
    """List job functions with their schedules and last jobs."""
    with open_operations(org) as operations:
        empty = "No job functions registered. Start a worker with: aaiclick worker start --import MODULE"
        print_models(operations.list_job_functions(), output, _table_row, empty_message=empty)


@functions.command("show")
@click.argument("entrypoint")
@org_option
@output_option
def show_function(entrypoint: str, org: str, output: str) -> None:
    """Show a job function with its parameters and last jobs."""
    with open_operations(org) as operations:
        shown = operations.get_job_function(entrypoint)
    print_model(shown, output, _table_row)
    if output == "json":
        return
    if shown.documentation:
        click.echo(f"\n{shown.documentation}")
    click.echo()
    required = shown.parameters.get("required", [])
    rows: list[Row] = [
        {
            "parameter": name,
            "type": describe_type(schema),
            "default": "required" if name in required else json.dumps(schema.get("default")),
            "description": schema.get("description", ""),
        }
        for name, schema in shown.parameters.get("properties", {}).items()
    ]
    print_records(rows, output, empty_message="No parameters.")
    click.echo()
    print_records([_job_row(job) for job in shown.jobs], output, empty_message="No jobs yet.")


@functions.command("run")
@click.argument("entrypoint")
@click.option("--arg", "pairs", type=ARGUMENT, multiple=True, metavar="NAME=VALUE",
              help="An argument; VALUE is JSON or plain text.")  # fmt: skip
@org_option
def run_function(entrypoint: str, pairs: tuple[tuple[str, object], ...], org: str) -> None:
    """Submit a job of a function; only the workers need its code."""
    with open_operations(org) as operations:
        created = operations.run_job_function(entrypoint, dict(pairs))
    print_message(f"Job {created.id} submitted. Show it with: aaiclick jobs show {created.id}")


def _table_row(function: JobFunction) -> Row:
    return {
        "function": function.entrypoint,
        "description": function.documentation.partition("\n")[0][:60],
        "schedule": function.schedule or "",
        "tags": ", ".join(f"{name}={value}" for name, value in function.tags.items()),
        "owner": function.owner or "",
        "version": (function.code_version or "")[:12],
        "last job": format_time(function.last_job_at),
        "status": function.last_job_status or "",
    }


def _job_row(job: FunctionRun) -> Row:
    return {
        "job": job.id,
        "status": job.status,
        "created": format_time(job.created_at),
        "completed": format_time(job.completed_at),
    }
