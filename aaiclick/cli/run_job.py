"""Submission of a job by `aaiclick run`, and its results."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from aaiclick.api.jobs import Job as JobModel
from aaiclick.cli import remote
from aaiclick.cli.entrypoint_import import import_user_module, load_target, split_entrypoint
from aaiclick.cli.failure_report import report_failure
from aaiclick.cli.job_arguments import parameters_of, parse_job_arguments
from aaiclick.cli.job_request import build_job_graph, build_job_options
from aaiclick.cli.jobs import job_json, job_row
from aaiclick.cli.output import print_message, print_record
from aaiclick.cli.watch import describe_unwatched, has_other_workers, warn_about_other_code, watch_job
from aaiclick.client.job_handle import iter_job_results
from aaiclick.data.json_results import to_json_value
from aaiclick.data.plain_value_preview import preview_plain
from aaiclick.errors import EXIT_FAILED, AaiclickError
from aaiclick.local import find_clickhouse
from aaiclick.operations.actor import local_actor
from aaiclick.operations.jobs import get_job
from aaiclick.orchestration import Job, OrchContext, create_job, create_task
from aaiclick.orchestration.decorators import JobFunction
from aaiclick.orchestration.graph import Node, Task
from aaiclick.orchestration.submit_plan import collect_unsubmitted
from aaiclick.settings import get_settings
from aaiclick.store.engine import queries
from aaiclick.store.tables.literal_results import load_result_literals
from aaiclick.tracebacks import report_user_errors

if TYPE_CHECKING:
    from aaiclick.client import Client

MAX_PRINTED = 20
"""Results in the text output; JSON has all."""

Result = tuple[str, str, object]
"""Name of a final task, text of its value, and the value as JSON; a table is its first rows as text."""


def run_job(
    entrypoint: str,
    pairs: Sequence[str],
    tokens: Sequence[str],
    name: str | None,
    wait: bool,
    debug: bool,
    output: str,
) -> int:
    """Submit the job of an entry point, wait for it and print its results; return the exit code."""
    sys.path.insert(0, str(Path.cwd()))
    if debug and remote.is_remote():
        remote.refuse_remote("--debug")
    target = _import_target(entrypoint) if remote.is_remote() else load_target(entrypoint)
    arguments = _read_arguments(target, pairs, tokens)
    if remote.is_remote():
        return _run_remote(entrypoint, target, arguments, name, wait, output)
    debug_queue = f"debug-{uuid4()}" if debug else None
    local_run = _run_local(entrypoint, target, arguments, name, wait, debug_queue, _count_printed(output))
    job, results, omitted = asyncio.run(local_run)
    return _print_result(job, results, output, omitted)


def _import_target(entrypoint: str) -> object:
    """The object that an entry point names; None if its module is only on the workers."""
    module, attribute = split_entrypoint(entrypoint)
    try:
        return getattr(import_user_module(module), attribute, None)
    except ModuleNotFoundError:
        return None


def _read_arguments(target: object, pairs: Sequence[str], tokens: Sequence[str]) -> dict[str, object]:
    """Arguments of --arg and of the parameters' own options; raises SubmitError if the parameters refuse them."""
    parameters = None if target is None else parameters_of(target)
    arguments = dict(_parse_argument(pair) for pair in pairs)
    arguments |= parse_job_arguments(tokens, None if parameters is None else parameters.parameters)
    if parameters is not None:
        parameters.bind(**arguments)
    return arguments


def _print_result(job: JobModel, results: Sequence[Result], output: str, omitted: str = "") -> int:
    """Print the job and its results; return the exit code. `omitted` says how many results are left out."""
    if output == "json":
        print_record(
            job_json(job) | {"results": [{"name": name, "value": value} for name, _, value in results]}, output
        )
    else:
        print_record(job_row(job), output)
        for name, text, _ in results:
            click.echo(f"{name}: {text}")
        if omitted:
            click.echo(f"… and {omitted} results: all are in the output of -o json.")
    report_failure(job)
    return EXIT_FAILED if job.status in ("FAILED", "CANCELLED") else 0


def _run_remote(
    entrypoint: str, target: object, arguments: dict[str, object], name: str | None, wait: bool, output: str
) -> int:
    """Submit a locally importable @job as the graph it builds, anything else by its entry point."""
    module, attribute = split_entrypoint(entrypoint)
    with remote.open_client() as client:
        if (job_function := _as_job_function(target)) is not None:
            graph = build_job_graph(asyncio.run(_build_tasks(job_function, arguments)))
            options = asyncio.run(build_job_options(job_function, arguments))
            job_id = client.create_job(name or job_function.name, **options, **graph).id
        else:
            job_id = client.create_job(name or attribute, f"{module}.{attribute}", arguments).id
        print_message(f"Job {job_id} submitted to {get_settings().server}.")
        job = _watch_remote(client, job_id) if wait else client.get_job(job_id)
        all_results = iter_job_results(client, job_id)
        results = [
            (result.name.rpartition(".")[2], result.value, result.value if result.data is None else result.data)
            for result in islice(all_results, _count_printed(output))
        ]
        omitted = "" if next(all_results, None) is None else "more"
    return _print_result(job, results, output, omitted)


def _count_printed(output: str) -> int | None:
    return None if output == "json" else MAX_PRINTED


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
    entrypoint: str,
    target: object,
    arguments: dict[str, object],
    name: str | None,
    wait: bool,
    debug_queue: str | None,
    limit: int | None,
) -> tuple[JobModel, list[Result], str]:
    """Submit and watch a job; returns it with up to `limit` results, and says how many are omitted."""
    async with OrchContext() as context:
        job = await _submit_job(entrypoint, target, arguments, name, debug_queue)
        print_message(f"Job {job.id} ({job.name}) submitted.")
        if debug_queue is not None:
            runner = importlib.import_module("aaiclick.orchestration.worker.inline_runner")  # slow import
            await runner.run_until_job_ends(job.id, debug_queue=debug_queue)
        elif wait:
            await watch_job(context, job.id)
        else:
            await warn_about_other_code(context, job.id)
            if not await has_other_workers(context, job.id):
                print_message("It waits for a worker. Start one in this directory: aaiclick worker start")
        async with context.connection() as connection:
            ended = await get_job(connection, local_actor(), job.id)
        results, omitted = await _load_results(context, job.id, limit) if wait else ([], 0)
        return ended, results, f"{omitted:,} more" if omitted else ""


async def _load_results(context: OrchContext, job_id: int, limit: int | None) -> tuple[list[Result], int]:
    """Load up to `limit` results of the job's final tasks, and count those that are omitted."""
    async with context.connection() as connection:
        all_rows = await queries.load_job_results(connection, job_id)
        rows = all_rows[:limit]
        literals = await load_result_literals(connection, (row["result"] for row in rows))
    forms = [json.loads(row["result"]) for row in rows]
    texts = [preview_plain(form, literals) for form in forms]
    if None in texts:
        from aaiclick.data.result_preview import preview_results  # slow import, only needed for tables

        endpoint = await asyncio.to_thread(find_clickhouse, get_settings())
        texts = await preview_results(forms, endpoint, literals)
    results: list[Result] = []
    for row, form, text in zip(rows, forms, texts, strict=True):
        value = to_json_value(form, literals)
        results.append((row["name"].rpartition(".")[2], str(text), text if value is None else value))
    return results, len(all_rows) - len(rows)


async def _submit_job(
    entrypoint: str, target: object, arguments: dict[str, object], name: str | None, debug_queue: str | None
) -> Job:
    module, attribute = split_entrypoint(entrypoint)
    job_function = _as_job_function(target)
    if job_function is not None:
        nodes = await _build_tasks(job_function, arguments)
    else:
        nodes = [create_task(f"{module}.{attribute}", arguments)]
    if debug_queue is not None:
        for node in collect_unsubmitted(nodes):
            if isinstance(node, Task):  # no other worker may take it, and no time limit ends the session
                node.options = node.options.change({"queue": debug_queue, "retries": 0, "timeout_seconds": None})
    if job_function is not None and debug_queue is None:
        return await job_function.submit(nodes, arguments, name=name)
    default_name = attribute if job_function is None else job_function.name
    return await create_job(name or default_name, nodes)  # without the time limit and the limit of jobs of a @job


def _as_job_function(target: object) -> JobFunction[...] | None:
    return target if isinstance(target, JobFunction) else None


async def _build_tasks(job_function: JobFunction[...], arguments: dict[str, object]) -> list[Node]:
    with report_user_errors(f"@job {job_function.name}()", "Nothing was submitted. Correct the line and run it again."):
        return await job_function.build_async(**arguments)


def _parse_argument(pair: str) -> tuple[str, object]:
    name, equals, text = pair.partition("=")
    if not equals or not name.isidentifier():
        raise click.UsageError(f"--arg {pair!r}: write NAME=VALUE.")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text
