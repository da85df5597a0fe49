"""`aaiclick run`: submit a job and wait for it."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from aaiclick.api.jobs import Job as JobModel
from aaiclick.cli import remote
from aaiclick.cli.failure_report import report_failure
from aaiclick.cli.job_request import build_job_graph
from aaiclick.cli.jobs import job_json, job_row
from aaiclick.cli.output import output_option, print_message, print_record
from aaiclick.cli.user_module import import_user_module, load_target, split_entrypoint
from aaiclick.cli.watch import describe_unwatched, watch_job
from aaiclick.errors import EXIT_FAILED, AaiclickError, SubmitError
from aaiclick.local import find_clickhouse
from aaiclick.operations.actor import local_actor
from aaiclick.operations.jobs import get_job
from aaiclick.orchestration import Job, OrchContext, create_job, create_task
from aaiclick.orchestration.decorators import JobFunction
from aaiclick.orchestration.graph import Node, Task
from aaiclick.orchestration.submit_plan import collect_unsubmitted
from aaiclick.settings import get_settings
from aaiclick.store.engine import queries
from aaiclick.store.tables.literals import load_result_literals
from aaiclick.tracebacks import report_user_errors

if TYPE_CHECKING:
    from aaiclick.client import Client

MAX_RESULTS = 5


@click.command()
@click.argument("entrypoint")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument; VALUE is JSON or plain text.")
@click.option("--name", default=None, help="Name of the job [default: the function's].")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the job has finished.")
@click.option("--debug", is_flag=True, help="Run the tasks in this process, one at a time: breakpoint() works.")
@output_option
def run(entrypoint: str, pairs: tuple[str, ...], name: str | None, wait: bool, debug: bool, output: str) -> int:
    """Run a job: ENTRYPOINT is package.module.function, a @job, a @task or a plain function.

    Exit code 1 if the job fails.
    """
    sys.path.insert(0, str(Path.cwd()))
    if debug and remote.is_remote():
        remote.refuse_remote("--debug")
    if remote.is_remote():
        return _run_remote(entrypoint, dict(_parse_argument(pair) for pair in pairs), name, wait, output)
    arguments = dict(_parse_argument(pair) for pair in pairs)
    debug_queue = f"debug-{uuid4()}" if debug else None
    job, results = asyncio.run(_run_local(entrypoint, arguments, name, wait, debug_queue))
    return _print_result(job, results, output)


def _print_result(job: JobModel, results: list[tuple[str, str]], output: str) -> int:
    """Print the job and its results; return the exit code."""
    if output == "json":
        values = [{"name": function, "value": _parse_result(text)} for function, text in results]
        print_record(job_json(job) | {"results": values}, output)
    else:
        print_record(job_row(job), output)
        for function, text in results:
            click.echo(f"{function}: {text}")
    report_failure(job)
    return EXIT_FAILED if job.status in ("FAILED", "CANCELLED") else 0


def _parse_result(text: str) -> object:
    """Parse a result's text into a JSON value; return the text if that is not possible."""
    try:
        value = ast.literal_eval(text)
        json.dumps(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return value


def _run_remote(entrypoint: str, arguments: dict[str, object], name: str | None, wait: bool, output: str) -> int:
    """Submit a locally importable @job as the graph it builds, anything else by its entry point."""
    module, attribute = split_entrypoint(entrypoint)
    try:
        target = getattr(import_user_module(module), attribute, None)
    except ModuleNotFoundError:  # the module is only on the workers
        target = None
    with remote.open_client() as client:
        if isinstance(target, JobFunction):
            job_function = target  # pyright: ignore[reportUnknownVariableType]
            graph = build_job_graph(asyncio.run(_build_tasks(job_function, arguments, entrypoint)))
            job_id = client.create_job(name or job_function.name, **graph).id
        else:
            job_id = client.create_job(name or attribute, f"{module}.{attribute}", arguments).id
        print_message(f"Job {job_id} submitted to {get_settings().server}.")
        job = _watch_remote(client, job_id) if wait else client.get_job(job_id)
        results = [(result.name.rpartition(".")[2], result.value) for result in client.get_job_results(job_id)]
    return _print_result(job, results, output)


def _watch_remote(client: Client, job_id: int) -> JobModel:
    """Wait for the job and return it; on Ctrl-C, print how to follow or cancel it."""
    try:
        return remote.watch_job(client, job_id)
    except KeyboardInterrupt:
        print_message(describe_unwatched(job_id, has_worker=not _lacks_worker(client, job_id)))
        raise


def _lacks_worker(client: Client, job_id: int) -> bool:
    try:
        first = next(client.list_tasks(job_id, status="PENDING", limit=1), None)
        reasons = [] if first is None else client.explain_task(first.id)
    except AaiclickError:
        return False  # unknown
    return any(reason.code == "no_worker" for reason in reasons)


async def _run_local(
    entrypoint: str, arguments: dict[str, object], name: str | None, wait: bool, debug_queue: str | None
) -> tuple[JobModel, list[tuple[str, str]]]:
    async with OrchContext() as context:
        job = await _submit_job(entrypoint, arguments, name, debug_queue)
        print_message(f"Job {job.id} ({job.name}) submitted.")
        if debug_queue is not None:
            runner = importlib.import_module("aaiclick.orchestration.worker.inline_runner")  # slow import
            await runner.run_until_job_ends(job.id, debug_queue=debug_queue)
        elif wait:
            await watch_job(context, job.id)
        async with context.connection() as connection:
            ended = await get_job(connection, local_actor(), job.id)
        return ended, await _load_results(context, job.id) if wait else []


async def _load_results(context: OrchContext, job_id: int) -> list[tuple[str, str]]:
    """Load the results of the job's final tasks, by function name."""
    async with context.connection() as connection:
        rows = await queries.load_job_results(connection, job_id, MAX_RESULTS)
        literals = await load_result_literals(connection, (row["result"] for row in rows))
    if not rows:
        return []
    from aaiclick.data.preview import preview_result  # slow import, only needed for results

    endpoint = await asyncio.to_thread(find_clickhouse, get_settings())
    return [
        (row["name"].rpartition(".")[2], await preview_result(json.loads(row["result"]), endpoint, literals))
        for row in rows
    ]


async def _submit_job(entrypoint: str, arguments: dict[str, object], name: str | None, debug_queue: str | None) -> Job:
    module, attribute = split_entrypoint(entrypoint)
    target = load_target(entrypoint)
    if isinstance(target, JobFunction):
        job_function = target  # pyright: ignore[reportUnknownVariableType]
        nodes = await _build_tasks(job_function, arguments, entrypoint)
        name = name or job_function.name
    else:
        nodes = [create_task(f"{module}.{attribute}", arguments)]
    if debug_queue is not None:
        for node in collect_unsubmitted(nodes):
            if isinstance(node, Task):  # no other worker may take it, and no time limit ends the session
                node.options = node.options.change({"queue": debug_queue, "retries": 0, "timeout_seconds": None})
    return await create_job(name or attribute, nodes)


async def _build_tasks(job_function: JobFunction[...], arguments: dict[str, object], entrypoint: str) -> list[Node]:
    """Build the tasks of a @job; raises SubmitError if the arguments do not match its signature."""
    try:
        inspect.signature(job_function.function).bind(**arguments)
    except TypeError as error:
        raise SubmitError(
            f"Invalid arguments for {entrypoint}: {error}.",
            remedy=f"Signature: {job_function.name}{inspect.signature(job_function.function)}; use --arg NAME=VALUE.",
        ) from None
    _check_types(job_function.function, arguments, entrypoint)
    with report_user_errors(f"@job {job_function.name}()", "Nothing was submitted. Correct the line and run it again."):
        return await job_function.build_async(**arguments)


PLAIN_TYPES: dict[Any, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str,), bool: (bool,), list: (list,)}


def _check_types(function: object, arguments: dict[str, object], entrypoint: str) -> None:
    """Check arguments against annotations of plain types before anything runs."""
    from aaiclick.data.io.annotations import annotations_of  # slow import: the ClickHouse client

    annotations = annotations_of(function)
    for name, value in arguments.items():
        expected_types = PLAIN_TYPES.get(annotations.get(name))
        if expected_types and (
            not isinstance(value, expected_types) or (isinstance(value, bool) and bool not in expected_types)
        ):
            raise SubmitError(
                f"{entrypoint} expects {name!r} as {annotations[name].__name__}, got {value!r:.60}.",
                remedy=f"Use --arg {name}=VALUE; VALUE is JSON.",
            )


def _parse_argument(pair: str) -> tuple[str, object]:
    name, equals, text = pair.partition("=")
    if not equals or not name.isidentifier():
        raise click.UsageError(f"--arg {pair!r}: write NAME=VALUE.")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text
