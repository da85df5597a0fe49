"""Deploying a DAG: a new version beside the old one, filled while that serves, then one swap.

`begin` adds the version, its definitions, its datasets and the generations they point to; what is made in the same way
as before keeps its generation. New generations are filled by a job of their own, from what there is, beside the old
ones. When it has completed, `finish` lets the version serve. Each is one transaction under the DAG's lock; whoever is
killed in between leaves the old version serving, and the next deploy goes on from there. A rollback is a swap back.

Deploys and rollbacks of one DAG take effect in the order in which they began, however long each is filled: who was
overtaken by a later one is told so, and does not undo it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg

from aaiclick import faults
from aaiclick.catalog import analysis
from aaiclick.catalog.dags.diff import DagDiff, diff_dags
from aaiclick.catalog.dags.identity import config_hash, dataset_hashes, places, version_hash
from aaiclick.catalog.dags.model import CronSource, Dag, JobSpec, Output
from aaiclick.catalog.dags.runtimes import HERE, foreign_prefixes, unknown_runtimes
from aaiclick.catalog.errors import DagError, DeployError
from aaiclick.errors import NotFoundError
from aaiclick.orchestration.schedule import parse_schedule
from aaiclick.settings import get_settings
from aaiclick.store import catalog_dags as store
from aaiclick.store.cancel import cancel_tasks
from aaiclick.store.clock import clock
from aaiclick.store.orgs import get_org
from aaiclick.store.words import DEFAULT_ORG_ID, Cancellation

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

MAX_PRELOADED = 5


@dataclass(frozen=True)
class Deployed:
    """What a deploy or a rollback did. `built` are the datasets with a generation that no version has served.

    While `job_id` fills them, the version does not serve yet. One that serves again has fallen behind meanwhile:
    `catch_up_id` brings its datasets up to date.
    """

    version_id: UUID
    version_hash: str
    previous: UUID | None
    is_new: bool
    built: tuple[str, ...]
    diff: DagDiff
    dag_name: str
    serves: bool = True
    job_id: int | None = None
    cancelled: int = 0
    catch_up_id: int | None = None

    @property
    def changed(self) -> bool:
        return self.previous != self.version_id


async def deploy(
    connection: Connection,
    text: str,
    file: str = "dag.yaml",
    *,
    org_id: UUID = DEFAULT_ORG_ID,
    by: UUID | None = None,
    roles: Collection[str] | None = None,
    going_on: bool = False,
) -> Deployed:
    """Begin to deploy a DAG. It serves at once if there is nothing to fill; else `finish` when the job has ended.

    `going_on` finishes what an earlier call has begun: it is no later wish than that.

    Of the datasets of other DAGs it reads those that one of the roles may read (None: all); the others are nobody's.
    """
    dag = await analysis.load_dag(text, file)
    await _check_settings(connection, dag, text, file, org_id)
    async with faults.transaction(connection, "deploy"):
        await store.lock_dag(connection, org_id, dag.name)
        before = await store.find_version(connection, org_id, dag.name)
        previous = before["id"] if before else None
        version_id, is_new, built = await _prepare(connection, org_id, dag, text, by, roles)
        if is_new or not going_on:
            await store.wish(connection, version_id)
        state = await store.version_state(connection, version_id)
        job_id = catch_up_id = None
        ready = state["ready_at"] is not None
        if not ready and before is not None:
            if state["fill_status"] in ("PENDING", "RUNNING"):
                job_id = state["fill_job_id"]
            elif state["fill_status"] != "COMPLETED":
                job_id = await store.start_filling(connection, org_id, dag.name, version_id, before["id"])
        if job_id is None and previous != version_id:
            if before is not None:
                _check_order(dag.name, before, state)
            returning = ready or _is_outrun(state, previous)
            catch_up_id = await _serve(connection, org_id, dag, version_id, returning=returning)
    diff = await asyncio.to_thread(diff_dags, await analysis.load_dag(before["yaml"]) if before else None, dag)
    diff = replace(diff, there=frozenset(each.dataset for each in diff.rebuilt if each.dataset not in built))
    return Deployed(
        version_id, await asyncio.to_thread(version_hash, dag), previous, is_new, built, diff, dag.name, job_id is None,
        job_id, catch_up_id=catch_up_id,
    )  # fmt: skip


async def finish(connection: Connection, deployed: Deployed, *, org_id: UUID = DEFAULT_ORG_ID) -> Deployed:
    """Let a version serve whose datasets are filled. Raises DeployError if they are not; then the old one serves on."""
    async with faults.transaction(connection, "finish_deploy"):
        await store.lock_dag(connection, org_id, deployed.dag_name)
        serving = await store.find_version(connection, org_id, deployed.dag_name)
        found = await store.find_version(connection, org_id, deployed.dag_name, deployed.version_id)
        if found is None:
            raise _no_dag(deployed.dag_name)
        if serving is not None and serving["id"] == deployed.version_id:
            return replace(deployed, serves=True)
        state = await store.version_state(connection, deployed.version_id)
        if state["fill_status"] != "COMPLETED":
            said = f" {first_line(state['fill_error'])}" if state["fill_error"] else ""
            raise DeployError(
                f"The new datasets of {deployed.dag_name!r} are not filled: job {state['fill_job_id']} is "
                f"{state['fill_status']}.{said} The version before still serves.",
                remedy=f"'aaiclick jobs show {state['fill_job_id']}' shows what happened; deploying again tries again.",
            )
        if serving is not None:
            _check_order(deployed.dag_name, serving, state)
        outrun = _is_outrun(state, serving["id"] if serving else None)
        dag = await analysis.load_dag(found["yaml"])
        catch_up_id = await _serve(connection, org_id, dag, deployed.version_id, returning=outrun)
    return replace(deployed, serves=True, catch_up_id=catch_up_id)


def _check_order(dag_name: str, serving: asyncpg.Record, state: asyncpg.Record) -> None:
    """Refuse to undo what was wished for later."""
    if serving["deploy_ticket"] > state["deploy_ticket"]:
        raise DeployError(
            f"Version {serving['yaml_hash'][:12]} of {dag_name!r}, deployed after this one was begun, serves already.",
            remedy="It serves on. Deploy again if this one is still wanted.",
        )


def _is_outrun(state: asyncpg.Record, serving: UUID | None) -> bool:
    """Whether another version began to serve while this one was filled, which then has fallen behind it as well."""
    return state["filled_beside"] is not None and state["filled_beside"] != serving


async def roll_back(
    connection: Connection, dag_name: str, to: str | None = None, *, org_id: UUID = DEFAULT_ORG_ID
) -> Deployed:
    """Let an older version serve again: the one whose hash begins with `to`, or the one before.

    Its datasets are as they were left, at once; then they catch up. What the newer version was doing is cancelled.
    Which one that is, is decided by what serves when it is asked for: two who ask at once go back once.
    """
    target = _older(dag_name, await store.list_versions(connection, org_id, dag_name), to)
    async with faults.transaction(connection, "roll_back"):
        await store.lock_dag(connection, org_id, dag_name)
        before = await store.find_version(connection, org_id, dag_name)
        found = await store.find_version(connection, org_id, dag_name, target)
        if before is None or found is None:
            raise _no_dag(dag_name)
        dag = await analysis.load_dag(found["yaml"])
        await store.wish(connection, found["id"])
        catch_up_id = None
        if before["id"] != found["id"]:
            catch_up_id = await _serve(connection, org_id, dag, found["id"], returning=True)
    left = await store.tasks_left(connection, before["id"], found["id"]) if before["id"] != found["id"] else []
    answers = (await cancel_tasks(connection, left)).values() if left else ()
    cancelled = sum(answer is not Cancellation.OVER for answer in answers)
    diff = await asyncio.to_thread(diff_dags, await analysis.load_dag(before["yaml"]), dag)
    diff = replace(diff, there=frozenset(each.dataset for each in diff.rebuilt))
    return Deployed(
        found["id"], found["yaml_hash"], before["id"], False, (), diff, dag_name, cancelled=cancelled,
        catch_up_id=catch_up_id,
    )  # fmt: skip


async def preload(
    connection: Connection, dag_name: str, to: str | None = None, *, org_id: UUID = DEFAULT_ORG_ID
) -> None:
    """Load the versions that a deploy or rollback is about to need: its transaction must not wait for an analysis."""
    versions = await store.list_versions(connection, org_id, dag_name)
    older = version_before(versions)
    wanted = [
        row["id"] for row in versions if row["serving"] or row is older or (to and row["yaml_hash"].startswith(to))
    ]
    for version_id in wanted[:MAX_PRELOADED]:
        found = await store.find_version(connection, org_id, dag_name, version_id)
        if found is not None:
            await analysis.load_dag(found["yaml"])


def first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")[:300]


async def compare(
    connection: Connection, text: str, file: str = "dag.yaml", *, org_id: UUID = DEFAULT_ORG_ID
) -> DagDiff:
    """What a deploy would change."""
    dag = await analysis.load_dag(text, file)
    before = await store.find_version(connection, org_id, dag.name)
    diff = await asyncio.to_thread(diff_dags, await analysis.load_dag(before["yaml"]) if before else None, dag)
    made = await store.made_before(
        connection, org_id, dag.name, await asyncio.to_thread(dataset_hashes, dag), places(dag)
    )
    return replace(diff, there=frozenset(each.dataset for each in diff.rebuilt if each.dataset in made))


def _no_dag(dag_name: str) -> NotFoundError:
    return NotFoundError(f"There is no DAG {dag_name!r:.60}.", remedy="'aaiclick dag versions' lists them.")


def version_before(versions: list[asyncpg.Record]) -> asyncpg.Record | None:
    """The newest of the versions (newest first) that is older than the one that serves and was ready to."""
    serving = next((index for index, row in enumerate(versions) if row["serving"]), len(versions))
    return next((row for row in versions[serving + 1 :] if row["ready_at"] is not None), None)


def _older(dag_name: str, versions: list[asyncpg.Record], to: str | None) -> UUID:
    """The version to go back to."""
    if not any(row["serving"] for row in versions):
        raise _no_dag(dag_name)
    if to is None:
        before = version_before(versions)
        if before is None:
            raise DeployError(f"The DAG {dag_name!r} has no version before the one that serves.")
        return before["id"]
    matching = [row for row in versions if row["yaml_hash"].startswith(to) and row["ready_at"] is not None]
    if len(matching) != 1:
        count = "no version" if not matching else f"{len(matching)} versions"
        raise DeployError(
            f"The DAG {dag_name!r} has {count} whose hash begins with {to!r:.70}.",
            remedy=f"'aaiclick dag versions {dag_name}' lists them.",
        )
    return matching[0]["id"]


async def _prepare(
    connection: Connection, org_id: UUID, dag: Dag, text: str, by: UUID | None, roles: Collection[str] | None
) -> tuple[UUID, bool, tuple[str, ...]]:
    identity = await asyncio.to_thread(version_hash, dag)
    added = await store.add_version(connection, org_id, dag.name, identity, text, by)
    if added is None:
        if roles is not None:  # that the version is there must not tell that what it reads is
            await _external(connection, org_id, dag, roles)
        versions = await store.list_versions(connection, org_id, dag.name)
        known = next(row for row in versions if row["yaml_hash"] == identity)
        built = () if known["ready_at"] else await store.made_for(connection, known["id"], places(dag))
        return known["id"], False, built
    external = await _external(connection, org_id, dag, roles)
    hashes, ids, built = await asyncio.to_thread(dataset_hashes, dag), dict[str, UUID](), list[str]()
    for job in dag.jobs:
        for index, output in enumerate(job.outputs):
            storage = output.storage.model_dump(exclude_defaults=True)
            ids[output.name] = await store.ensure_dataset(connection, org_id, dag.name, job.name, index, storage)
            fresh = uuid4()
            generation, made = await store.ensure_dataset_version(
                connection, ids[output.name], hashes[output.name], fresh, _location(output, fresh), added,
                output.range,
            )  # fmt: skip
            if made:
                built.append(output.name)
            await store.point(connection, added, ids[output.name], generation)
    definitions = await asyncio.to_thread(lambda: [_definition(job, ids, external) for job in dag.jobs])
    await store.add_definitions(connection, org_id, dag.name, added, definitions)
    return added, True, tuple(built)


async def _check_settings(connection: Connection, dag: Dag, text: str, file: str, org_id: UUID) -> None:
    """Refuse jobs whose runtime is set up nowhere (their tasks would wait for ever), and files in places of others."""
    if all(job.runtime in HERE and not _in_files(job) for job in dag.jobs):
        return
    settings, org = get_settings(), (await get_org(connection, org_id))["slug"]
    problems = await analysis.locate_findings(text, unknown_runtimes(dag, settings.runtimes, org))
    problems += await analysis.locate_findings(text, foreign_prefixes(dag, settings.parquet_prefixes, org))
    if problems:
        raise DagError(file, problems)


async def _external(connection: Connection, org_id: UUID, dag: Dag, roles: Collection[str] | None) -> dict[str, UUID]:
    """The datasets of other DAGs that this one reads; one that is hidden is one that nobody publishes."""
    wanted = sorted({each.dataset for job in dag.jobs for each in job.inputs if each.dataset})
    found = await store.datasets_named(connection, org_id, wanted, roles)
    for name in wanted:
        if name not in found:
            raise DeployError(
                f"The DAG {dag.name!r} reads the dataset {name!r}, which nobody publishes.",
                remedy="Deploy the DAG that publishes it first.",
            )
    return {name: row["id"] for name, row in found.items()}


def _location(output: Output, generation: UUID) -> str:
    """Where a generation is kept: a table, or a prefix of files."""
    if output.storage.glob is not None:
        return f"{str(output.storage.prefix).rstrip('/')}/{output.storage.glob}"
    if output.storage.kind == "parquet":
        return f"{str(output.storage.prefix).rstrip('/')}/{generation}/"
    return f"dataset_{generation.hex}"


def _in_files(job: JobSpec) -> bool:
    return any(output.storage.kind == "parquet" for output in job.outputs)


def _definition(job: JobSpec, ids: dict[str, UUID], external: dict[str, UUID]) -> store.NewDefinition:
    def dumped(part: Any) -> dict[str, Any] | None:
        return None if part is None else part.model_dump(mode="json")

    inputs = [external[each.dataset] if each.dataset else ids[str(each.output)] for each in job.inputs]
    return store.NewDefinition(
        name=job.name,
        activation=job.activation,
        runtime="dispatcher" if job.runtime == "pool" and _in_files(job) else job.runtime,
        operator=job.operator,
        source=dumped(job.source),
        bootstrap=dumped(job.bootstrap),
        execution_strategy=job.execution_strategy,
        idle_timeout=job.idle_timeout,
        config=job.config,
        config_hash=config_hash(job),
        spec=job.model_dump(mode="json", exclude_defaults=True),
        input_datasets=[str(each) for each in inputs],
        output_datasets=[str(ids[output.name]) for output in job.outputs],
        update_strategy=job.update_strategy,
        unique_key=job.unique_key or None,
        scaling=dumped(job.scaling),
        timeout_seconds=job.timeout_seconds,
        heartbeat_timeout_seconds=job.heartbeat_timeout_seconds,
        max_attempts=job.max_attempts,
        status="Pending" if job.activation == "source" else "Idle",
    )


async def _serve(
    connection: Connection, org_id: UUID, dag: Dag, version_id: UUID, *, returning: bool = False
) -> int | None:
    """The swap. A version that served before has fallen behind meanwhile, in ways that only a closer look shows;
    returns the job that brings it up to date.
    """
    published = {each.output: each.name or each.output for each in dag.publish}
    names = {place: published.get(output, f"{dag.name}.{output}") for output, place in places(dag).items()}
    await _check_names(connection, org_id, dag, set(names.values()))
    now = await clock(connection)
    next_runs = {
        job.name: following
        for job in dag.jobs
        if isinstance(job.source, CronSource)
        and (following := parse_schedule(job.source.schedule, job.source.timezone).next_run(now)) is not None
    }
    try:
        await store.swap(connection, org_id, dag.name, version_id, names, next_runs)
    except asyncpg.UniqueViolationError:  # another DAG took the name since the check
        raise DeployError(
            f"Another DAG published a dataset under a name of {dag.name!r} meanwhile.",
            remedy="Publish under another name.",
        ) from None
    await store.set_ready(connection, version_id)
    return await store.catch_up(connection, org_id, dag.name, version_id, all_of_it=returning)


async def _check_names(connection: Connection, org_id: UUID, dag: Dag, names: set[str]) -> None:
    for name, row in (await store.datasets_named(connection, org_id, sorted(names))).items():
        if row["producer_dag_name"] != dag.name:
            raise DeployError(
                f"The dataset {name!r} is published by the DAG {row['producer_dag_name']!r}.",
                remedy="A dataset has one producer: publish it under another name.",
            )
