"""`aaiclick run`: submit a job and watch it to its end."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aaiclick.cli import remote
from aaiclick.cli.graphs import graph_of
from aaiclick.cli.jobs import find_job, job_facts, job_line
from aaiclick.cli.output import Row, note, output_option, print_record
from aaiclick.cli.watching import left, see_through
from aaiclick.data.forms import annotations_of
from aaiclick.errors import EXIT_FAILED, AaiclickError, EntrypointError, SubmitError
from aaiclick.local import find_clickhouse
from aaiclick.orchestration import Job, OrchContext, create_job, create_task
from aaiclick.orchestration.decorators import JobFunction
from aaiclick.orchestration.graph import Node
from aaiclick.settings import get_settings
from aaiclick.store import reads
from aaiclick.store.words import JobStatus

if TYPE_CHECKING:
    from aaiclick.client import Client

RESULTS = 5


@click.command()
@click.argument("entrypoint")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument; VALUE is JSON or plain text.")
@click.option("--name", default=None, help="Name of the job [default: the function's].")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Watch it to its end.")
@output_option
def run(entrypoint: str, pairs: tuple[str, ...], name: str | None, wait: bool, output: str) -> int:
    """Run a job: ENTRYPOINT is package.module.function, a @job, a @task or a plain function.

    Exit code 1 if the job fails.
    """
    sys.path.insert(0, str(Path.cwd()))
    if remote.is_remote():
        return _run_from_afar(entrypoint, dict(_argument(pair) for pair in pairs), name, wait, output)
    job, results = asyncio.run(_run(entrypoint, dict(_argument(pair) for pair in pairs), name, wait))
    return _print(job, results, output)


def _print(job: Row, results: dict[str, str], output: str) -> int:
    """How the job ended, what it came to, and the code to exit with."""
    if output == "json":
        values = {function: _value(words) for function, words in results.items()}
        print_record(job_facts(job) | {"results": values}, output)
    else:
        print_record(job_line(job), output)
        for function, words in results.items():
            click.echo(f"{function}: {words}")
    return EXIT_FAILED if job["status"] in (JobStatus.FAILED.value, JobStatus.CANCELLED.value) else 0


def _value(words: str) -> Any:
    """What a result in words stands for, if JSON has it; else the words."""
    try:
        value = ast.literal_eval(words)
        json.dumps(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return words
    return value


def _run_from_afar(entrypoint: str, arguments: dict[str, Any], name: str | None, wait: bool, output: str) -> int:
    """A @job that is importable here is sent as the graph that it builds; anything else by its name."""
    module, attribute = _split(entrypoint)
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError:  # the code is where the workers are
        found = None
    with remote.open_client() as client:
        if isinstance(found, JobFunction):
            made = found  # pyright: ignore[reportUnknownVariableType]
            graph = graph_of(_built(made, arguments, entrypoint))
            job_id = client.create_job(name or made.name, **graph)
        else:
            job_id = client.create_job(name or attribute, f"{module}.{attribute}", arguments)
        note(f"Job {job_id} is submitted to {get_settings().server}.")
        job = _watch_from_afar(client, job_id) if wait else remote.row(client.get_job(job_id))
        results = {each["name"].rpartition(".")[2]: each["value"] for each in client.job_results(job_id)}
    return _print(job, results, output)


def _watch_from_afar(client: Client, job_id: int) -> Row:
    """The job when it has ended; who does not wait for that is told what becomes of it."""
    try:
        return remote.watch(client, job_id)
    except KeyboardInterrupt:
        note(left(job_id, worked_on=not _lacks_a_worker(client, job_id)))
        raise


def _lacks_a_worker(client: Client, job_id: int) -> bool:
    try:
        first = next(client.tasks(job_id, status="PENDING", limit=1), None)
        reasons = [] if first is None else client.why(int(first["id"]))
    except AaiclickError:
        return False  # nobody can tell
    return any(reason["code"] == "no_worker" for reason in reasons)


async def _run(entrypoint: str, arguments: dict[str, Any], name: str | None, wait: bool) -> tuple[Row, dict[str, str]]:
    async with OrchContext() as context:
        job = await _submit(entrypoint, arguments, name)
        note(f"Job {job.id} ({job.name}) is submitted.")
        if wait:
            await see_through(context, job.id)
        async with context.connection() as connection:
            row = dict(await find_job(connection, job.id))
        return row, await _results(context, job.id) if wait else {}


async def _results(context: OrchContext, job_id: int) -> dict[str, str]:
    """What the job came to, by the functions that nothing waits for."""
    async with context.connection() as connection:
        rows = await reads.job_results(connection, job_id, RESULTS)
    if not rows:
        return {}
    from aaiclick.data.shown import show  # heavy: only what has a result needs it

    target = await asyncio.to_thread(find_clickhouse, get_settings())
    return {row["name"].rpartition(".")[2]: await show(json.loads(row["result"]), target) for row in rows}


async def _submit(entrypoint: str, arguments: dict[str, Any], name: str | None) -> Job:
    module, attribute = _split(entrypoint)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise EntrypointError(
            f"{entrypoint!r} cannot be imported: {error}.", remedy="Run this where the module is, or install it."
        ) from None
    if isinstance(found, JobFunction):
        made = found  # pyright: ignore[reportUnknownVariableType]
        return await create_job(name or made.name, _built(made, arguments, entrypoint))
    return await create_job(name or attribute, create_task(f"{module}.{attribute}", arguments))


def _split(entrypoint: str) -> tuple[str, str]:
    module, _, attribute = entrypoint.replace(":", ".").rpartition(".")
    if not module:
        raise EntrypointError(
            f"{entrypoint!r} names a module at most.", remedy=f"Say which function of it: {entrypoint}.FUNCTION"
        )
    return module, attribute


def _built(made: JobFunction[...], arguments: dict[str, Any], entrypoint: str) -> list[Node]:
    """The tasks of a @job, if it takes these arguments."""
    try:
        inspect.signature(made.function).bind(**arguments)
    except TypeError as error:
        raise SubmitError(
            f"{entrypoint} cannot be called so: {error}.",
            remedy=f"It is {made.name}{inspect.signature(made.function)}; give --arg NAME=VALUE.",
        ) from None
    _check_types(made.function, arguments, entrypoint)
    return made.build(**arguments)


PLAIN: dict[Any, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str,), bool: (bool,), list: (list,)}


def _check_types(function: Any, arguments: dict[str, Any], entrypoint: str) -> None:
    """A mistyped argument is told of before anything runs, where the annotation is a plain type."""
    annotations = annotations_of(function)
    for name, value in arguments.items():
        wanted = PLAIN.get(annotations.get(name))
        if wanted and (not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted)):
            raise SubmitError(
                f"{entrypoint} takes {name!r} as {annotations[name].__name__}, and was given {value!r:.60}.",
                remedy=f"Give --arg {name}=VALUE; VALUE is JSON.",
            )


def _argument(pair: str) -> tuple[str, Any]:
    name, equals, text = pair.partition("=")
    if not equals or not name.isidentifier():
        raise click.UsageError(f"--arg {pair!r}: write NAME=VALUE.")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text
