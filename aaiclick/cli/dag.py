"""`aaiclick dag`: check, compare, deploy, start and roll back DAGs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from aaiclick.catalog import backfill as backfills
from aaiclick.catalog import deploy as deploys
from aaiclick.catalog.dags.load import load_dag_file
from aaiclick.catalog.dags.words import changes_of
from aaiclick.catalog.errors import DeployError
from aaiclick.catalog.made import made_in_words
from aaiclick.cli import remote
from aaiclick.cli.clickhouse import clickhouse_of
from aaiclick.cli.database import first_line, moment, org_id_of, seconds
from aaiclick.cli.deeds import do, note_deed, recorded
from aaiclick.cli.jobs import find_job, job_facts
from aaiclick.cli.key import org_option
from aaiclick.cli.output import Row, named, note, output_option, print_record, print_records, print_rows
from aaiclick.cli.remote import of_org, reach
from aaiclick.cli.tasks import task_facts
from aaiclick.cli.watching import see_through
from aaiclick.client import calls
from aaiclick.errors import EXIT_FAILED, NotFoundError
from aaiclick.orchestration import JobStatus, OrchContext
from aaiclick.store import catalog_dags, catalog_sources, reads

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

MANY = 1_000
"""Tasks of a job that are shown."""

FILE = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def dag() -> None:
    """Check, compare, deploy, start and roll back DAGs."""


@dag.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate(files: tuple[Path, ...]) -> None:
    """Check DAG files; needs no database."""
    for file in files:
        found = load_dag_file(file)
        note(f"{file} is a DAG: {found.name}, {len(found.jobs)} jobs.")


@dag.command()
@FILE
@org_option
@output_option
def diff(file: Path, org: str, output: str) -> None:
    """Show what a deploy of a file would change."""
    text = _checked(file)

    async def work(connection: Connection) -> list[Row]:
        found = await deploys.compare(connection, text, str(file), org_id=await org_id_of(connection, org))
        return [dict(each) for each in changes_of(found)]

    found = reach(work, lambda client: of_org(client, org).diff_dag(text, str(file)))
    print_records(found, output, nothing="Nothing would change.")


@dag.command()
@FILE
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until new datasets are filled.")
@org_option
@output_option
def deploy(file: Path, wait: bool, org: str, output: str) -> None:
    """Deploy a file: a new version, which serves as soon as its new datasets are filled.

    Until then the version before serves. Where no worker runs, one runs along.
    """
    text = _checked(file)
    if remote.is_remote():
        with remote.open_client() as client:
            done = _deploy_from_afar(of_org(client, org), text, str(file), wait)
    else:
        done = _said(asyncio.run(_deploy(text, str(file), wait, org)))
    _print_done(done, output)
    short = done["hash"][:12]
    if not done["changed"]:
        note(f"Version {short} serves already; nothing was changed.")
    elif not done["serves"]:
        note(f"Job {done['job_id']} fills version {short}. Deploy again to let it serve when that has completed.")
    else:
        note(f"Version {short} serves. New generations: {', '.join(done['built']) or 'none, all data is kept'}.")


def _said(done: deploys.Deployed) -> Row:
    """A deploy as the API says it."""
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
        "changes": changes_of(done.diff),
    }


def _print_done(done: Row, output: str) -> None:
    """What a deploy or a rollback did: all of it, or in a table what has changed."""
    if output == "json":
        print_record(done, output)
    else:
        print_records(done["changes"], output)


def _text_id(value: int | None) -> str | None:
    return None if value is None else str(value)


def _deploy_from_afar(client: Client, text: str, file: str, wait: bool) -> Row:
    done = client.deploy_dag(text, file)
    if done["job_id"] is None or not wait:
        return _caught_up_from_afar(client, done, wait)
    note(f"Job {done['job_id']} fills the new datasets; the version before serves meanwhile.")
    ended = remote.watch(client, int(done["job_id"]))
    if ended["status"] != JobStatus.COMPLETED.value:
        raise DeployError(
            f"The new datasets are not filled: job {done['job_id']} is {ended['status']}. {first_line(ended['error'])}"
            " The version before still serves.",
            remedy=f"'aaiclick jobs show {done['job_id']}' shows what happened; deploying again tries again.",
        )
    finished = client.deploy_dag(text, file, going_on=True)
    known = ("serves", "catch_up_id")
    done |= {name: finished[name] for name in known} | {"job_id": finished["job_id"] or done["job_id"]}
    return _caught_up_from_afar(client, done, wait)


def _caught_up_from_afar(client: Client, done: Row, wait: bool) -> Row:
    if done["catch_up_id"] is not None and wait:
        note(_catching_up(done))
        _check_caught_up(done, remote.watch(client, int(done["catch_up_id"]))["status"])
    return done


def _catching_up(done: Row) -> str:
    return f"Version {done['hash'][:12]} serves; job {done['catch_up_id']} brings its datasets up to date."


def _check_caught_up(done: Row, status: str) -> None:
    if status != JobStatus.COMPLETED.value:
        raise DeployError(
            f"Version {done['hash'][:12]} serves, and its datasets are not up to date: job {done['catch_up_id']} is "
            f"{status}.",
            remedy=f"'aaiclick jobs show {done['catch_up_id']}' shows what happened.",
        )


async def _deploy(text: str, file: str, wait: bool, org: str) -> deploys.Deployed:
    async with OrchContext() as context, context.connection() as connection:
        org_id = await org_id_of(connection, org)
        async with recorded(connection):
            done = await deploys.deploy(connection, text, file, org_id=org_id)
            await note_deed(connection, org_id, "dag.deploy", done.dag_name, {"version": done.version_hash})
        if done.job_id is not None and wait:
            note(f"Job {done.job_id} fills the new datasets; the version before serves meanwhile.")
            await see_through(context, done.job_id)
            done = await deploys.finish(connection, done, org_id=org_id)
        if done.catch_up_id is not None and wait:
            note(_catching_up(_said(done)))
            await see_through(context, done.catch_up_id)
            ended = await reads.get_job(connection, done.catch_up_id)
            _check_caught_up(_said(done), ended["status"] if ended is not None else JobStatus.COMPLETED.value)
        return done


@dag.command()
@click.argument("name", required=False)
@org_option
@output_option
def versions(name: str | None, org: str, output: str) -> None:
    """List the versions of a DAG, or of all."""

    async def work(connection: Connection) -> list[Row]:
        rows = await catalog_dags.list_versions(connection, await org_id_of(connection, org), name)
        if name is not None and not rows:
            raise NotFoundError(f"There is no DAG {name!r:.60}.", remedy="'aaiclick dag versions' lists them.")
        return [dict(row) | {"dag": row["dag_name"], "hash": row["yaml_hash"]} for row in rows]

    rows = reach(work, lambda client: remote.rows(of_org(client, org).dag_versions(name)))
    print_rows(rows, output, _version_line, _version_facts, nothing="There are no DAGs.")


def _version_line(row: Row) -> Row:
    return {
        "dag": row["dag"],
        "version": row["hash"][:12],
        "created": moment(row["created_at"]),
        "serves since": moment(row["serving_since"]),
    }


def _version_facts(row: Row) -> Row:
    return named(row, ("id", "dag", "hash", "created_at", "ready_at", "serving_since"))


@dag.command()
@click.argument("name")
@org_option
@output_option
def show(name: str, org: str, output: str) -> None:
    """Show the jobs of the version that serves, and their states."""

    async def work(connection: Connection) -> list[Row]:
        found = await catalog_sources.list_definitions(connection, await org_id_of(connection, org), name)
        return [dict(row) for row in found]

    def ask(client: Client) -> list[Row]:
        return remote.rows(of_org(client, org).call(calls.get(calls.named("dags", name, "definitions"))))

    print_rows(reach(work, ask), output, _definition_line, lambda row: named(row, DEFINITION))


DEFINITION = (
    "name", "activation", "operator", "source", "status", "next_run_at", "last_event_at", "last_heartbeat", "paused_at",
)  # fmt: skip


def _definition_line(row: Row) -> Row:
    return {
        "job": row["name"],
        "starts": row["source"] or "by updates",
        "state": f"{row['status']} (paused)" if row["paused_at"] else row["status"],
        "next": moment(row["next_run_at"]),
        "last": moment(row["last_event_at"]),
        "heartbeat": moment(row["last_heartbeat"]),
    }


@dag.command()
@click.argument("name")
@click.option("--to", metavar="HASH", help="The version to go back to; by default the one before.")
@org_option
@output_option
def rollback(name: str, to: str | None, org: str, output: str) -> None:
    """Let an older version serve again, with its data as it was; then that catches up."""

    async def work(connection: Connection) -> Row:
        org_id = await org_id_of(connection, org)
        async with recorded(connection):
            done = await deploys.roll_back(connection, name, to, org_id=org_id)
            await note_deed(connection, org_id, "dag.rollback", name, {"version": done.version_hash})
        return _said(done)

    done = reach(work, lambda client: of_org(client, org).roll_back_dag(name, to))
    _print_done(done, output)
    stopped = f" {done['cancelled']} tasks of the version before were cancelled." if done["cancelled"] else ""
    note(f"Version {done['hash'][:12]} of {name} serves.{stopped}")
    if done["catch_up_id"] is not None:
        note(f"Job {done['catch_up_id']} brings its datasets up to date as soon as a worker runs.")


JOB = click.option("--job", default=None, help="The source to start [default: the only one].")
DATA = click.option("--data", default=None, metavar="JSON", help="What the source is given as the event's payload.")


@dag.command()
@click.argument("name")
@JOB
@DATA
@org_option
@output_option
def trigger(name: str, job: str | None, data: str | None, org: str, output: str) -> None:
    """Start a source of a DAG, and do not wait."""
    payload = _payload(data)

    async def work(connection: Connection) -> int:
        return await _start(connection, await org_id_of(connection, org), name, job, payload)

    job_id = reach(work, lambda client: of_org(client, org).run_dag(name, job, payload))
    print_record({"job": str(job_id)}, output)
    note(f"Watch it: aaiclick jobs show {job_id}")


@dag.command()
@click.argument("name")
@JOB
@DATA
@org_option
@output_option
def run(name: str, job: str | None, data: str | None, org: str, output: str) -> int:
    """Start a source of a DAG, and watch everything that it causes to its end.

    Where no worker runs, one runs along. Exit code 1 if something fails.
    """
    if remote.is_remote():
        with remote.open_client() as client:
            ended, tasks = _run_from_afar(of_org(client, org), name, job, _payload(data))
    else:
        ended, tasks = asyncio.run(_run(name, job, _payload(data), org))
    if output == "json":
        print_record(job_facts(ended) | {"tasks": [task_facts(row) for row in tasks]}, output)
    else:
        print_records([_task_line(row) for row in tasks], output)
    return EXIT_FAILED if ended["status"] in (JobStatus.FAILED.value, JobStatus.CANCELLED.value) else 0


async def _run(name: str, job: str | None, payload: Any, org: str) -> tuple[Row, list[Row]]:
    """The job when it has ended, and its tasks."""
    async with OrchContext() as context, context.connection() as connection:
        org_id = await org_id_of(connection, org)
        job_id = await _start(connection, org_id, name, job, payload)
        note(f"Job {job_id} is started.")
        await see_through(context, job_id)
        ended = dict(await find_job(connection, job_id))
        rows = await reads.tasks_of_job(connection, org_id, job_id, limit=MANY)
        note(f"Job {job_id}: {ended['status']}, {ended['total_tasks']} tasks.")
        return ended, [dict(row) | {"made": made_in_words(row["outputs"])} for row in rows]


def _run_from_afar(client: Client, name: str, job: str | None, payload: Any) -> tuple[Row, list[Row]]:
    job_id = client.run_dag(name, job, payload)
    note(f"Job {job_id} is started.")
    ended = remote.watch(client, job_id)
    note(f"Job {job_id}: {ended['status']}, {ended['total_tasks']} tasks.")
    return ended, remote.rows(client.tasks(job_id), MANY)


async def _start(connection: Connection, org_id: UUID, name: str, job: str | None, payload: Any) -> int:
    event = {"kind": "manual"} if payload is None else {"kind": "manual", "payload": payload}
    async with recorded(connection):
        job_id, _ = await catalog_sources.start_source(connection, org_id, name, job, event)
        await note_deed(connection, org_id, "dag.run", name, {"job": str(job_id)})
    return job_id


def _payload(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--data is not JSON: {error}.") from None


def _task_line(row: Row) -> Row:
    return {
        "task": str(row["id"]),
        "job": row["type"],
        "partition": ", ".join(row["partitions"] or ()),
        "status": row["status"],
        "took": seconds(row["started_at"], row["completed_at"]),
        "made": row["made"],
        "error": first_line(row["error"]),
    }


@dag.command()
@click.argument("name")
@click.option("--job", default=None, help="A cron source, or a job per partition [default: the only one].")
@click.option("--from", "first", required=True, metavar="START", help="The first time or partition.")
@click.option("--to", "last", required=True, metavar="END", help="The last one; a day stands for all of it.")
@click.option("--dry-run", is_flag=True, help="Only show what would run.")
@org_option
@output_option
def backfill(name: str, job: str | None, first: str, last: str, dry_run: bool, org: str, output: str) -> None:
    """Run the times or partitions of a range that have not run.

    A cron source runs for the times of its schedule, a job per partition for the partitions of its input. What ran
    before is left alone: it may be repeated. Sources run one at a time unless they may overlap; max_concurrency holds.
    """

    async def work(connection: Connection) -> Row:
        org_id = await org_id_of(connection, org)
        plan = await backfills.plan(connection, lambda: clickhouse_of(org_id), org_id, name, job, first, last)
        if dry_run:
            return _filled(plan, [])
        async with recorded(connection):
            jobs = await backfills.begin(connection, plan)
            detail = {"source": plan.job_name, "from": first, "to": last, "runs": len(plan.to_run)}
            await note_deed(connection, org_id, "dag.backfill", name, detail)
        return _filled(plan, jobs)

    done = reach(work, lambda client: of_org(client, org).backfill_dag(name, first, last, job, dry_run=dry_run))
    if output == "json":
        print_record(done, output)
    else:
        print_records([_step_line(step, dry_run) for step in done["steps"]], output)
    kept = f" {done['before']} ran before." if done["before"] else ""
    if dry_run:
        note(f"{done['count']} of {done['job']} would run.{kept}")
    else:
        watch = f" Watch it: aaiclick jobs show {done['job_ids'][0]}" if done["job_ids"] else ""
        note(f"{done['count']} of {done['job']} run.{kept}{watch}")


def _filled(plan: backfills.Plan, jobs: list[int]) -> Row:
    """A backfill as the API says it."""
    return {
        "job": plan.job_name,
        "count": len(plan.to_run),
        "before": len(plan.steps) - len(plan.to_run),
        "steps": [{"name": each.name, "status": each.status, "job_id": _text_id(each.job_id)} for each in plan.steps],
        "job_ids": [str(job_id) for job_id in jobs],
    }


def _step_line(step: Row, dry_run: bool) -> Row:
    state = step["status"] or ("would run" if dry_run else "runs")
    return {"run": step["name"], "state": state, "job": step["job_id"] or ""}


@dag.command()
@click.argument("name")
@org_option
def pause(name: str, org: str) -> None:
    """Start no source of a DAG and none of its tasks; what runs goes on."""
    do(org, "dag.pause", name, _pause, lambda client: client.pause_dag(name))
    note(f"{name} is paused: aaiclick dag resume {name}")


@dag.command()
@click.argument("name")
@org_option
def resume(name: str, org: str) -> None:
    """Let a paused DAG go on. What its schedules missed is handled as each says."""
    count = do(org, "dag.resume", name, _resume, lambda client: client.resume_dag(name))
    note(f"{name} goes on; {count} tasks were waiting.")


async def _pause(connection: Connection, name: str, org_id: UUID) -> None:
    await catalog_sources.pause_dag(connection, org_id, name)


async def _resume(connection: Connection, name: str, org_id: UUID) -> int:
    return await catalog_sources.resume_dag(connection, org_id, name)


def _checked(file: Path) -> str:
    """The text of a file that loads; its errors are told before a database is asked for."""
    load_dag_file(file)
    return file.read_text(encoding="utf-8-sig")
