"""Deploy a DAG: add a version, fill its new datasets while the old version serves, then swap.

`deploy` adds the version, its definitions, its datasets and their generations; a dataset with an unchanged hash keeps
its generation. New generations are filled by a separate job. When it has completed, the same deploy with `resume` makes
the version serve. Each step is one transaction under the DAG's lock; after a crash in between, the old version serves
and the next deploy continues. A rollback is a swap back.

Deploys and rollbacks of one DAG take effect in the order in which they began, however long filling takes: one that was
overtaken by a later one fails and does not undo it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg

from aaiclick import failpoints
from aaiclick.catalog import sql_yaml_analysis
from aaiclick.catalog.dags.data_test_datasets import REJECTED_INDEX, find_rejected_keys, find_test_references
from aaiclick.catalog.dags.diff import DagDiff, diff_dags
from aaiclick.catalog.dags.hashing import config_hash, dataset_hashes, find_output_keys, version_hash
from aaiclick.catalog.dags.model import (
    REJECTED_SUFFIX,
    AlwaysOnSource,
    CronSource,
    Dag,
    DefinitionSpec,
    Output,
)
from aaiclick.catalog.dags.runtime_and_location_check import (
    LOCAL_RUNTIMES,
    find_foreign_prefixes,
    find_unknown_runtimes,
)
from aaiclick.catalog.errors import DagError, DeployError
from aaiclick.cron import parse_schedule
from aaiclick.errors import NotFoundError
from aaiclick.settings import get_settings
from aaiclick.store.catalog import dag_versions as store
from aaiclick.store.catalog.dataset_events import UNLIMITED_SECONDS
from aaiclick.store.catalog.freshness import set_policies
from aaiclick.store.clock import read_clock
from aaiclick.store.engine.cancel import cancel_tasks
from aaiclick.store.enums import DEFAULT_ORG_ID, Cancellation
from aaiclick.store.tenancy.orgs import get_org

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

MAX_PRELOADED = 5


@dataclass(frozen=True)
class DeployResult:
    """Result of a deploy or a rollback. `built` are the datasets with a generation that no version has served.

    While `job_id` fills them, the version does not serve yet. `catch_up_id` is the job that brings the datasets of a
    version that serves again up to date.
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
    resume: bool = False,
) -> DeployResult:
    """Deploy a DAG. It serves at once if there is nothing to fill; otherwise call it with `resume` after the job.

    With `resume`, an earlier call is continued, so the position in the order of deploys does not change.

    Datasets of other DAGs must be readable by one of the roles (None: all); hidden ones count as unpublished.
    """
    dag = await sql_yaml_analysis.load_dag(text, file)
    await _check_settings(connection, dag, text, file, org_id)
    async with failpoints.transaction(connection, "deploy"):
        await store.lock_dag(connection, org_id, dag.name)
        before = await store.find_version(connection, org_id, dag.name)
        previous = before.id if before else None
        version_id, is_new, built = await _add_version(connection, org_id, dag, text, by, roles)
        if is_new or not resume:
            await store.request_serving(connection, version_id)
        state = await store.get_version_state(connection, version_id)
        job_id = catch_up_id = None
        ready = state.ready_at is not None
        if not ready and before is not None:
            if state.fill_status in ("PENDING", "RUNNING"):
                job_id = state.fill_job_id
            elif state.fill_status != "COMPLETED":
                job_id = await store.start_fill_job(connection, org_id, dag.name, version_id, before.id)
        if job_id is None and previous != version_id:
            if before is not None:
                _check_deploy_order(dag.name, before, state)
            returning = ready or _was_overtaken(state, previous)
            catch_up_id = await _swap_version(connection, org_id, dag, version_id, returning=returning)
    diff = await asyncio.to_thread(diff_dags, await sql_yaml_analysis.load_dag(before.yaml) if before else None, dag)
    diff = replace(diff, there=frozenset(rebuild.dataset for rebuild in diff.rebuilt if rebuild.dataset not in built))
    return DeployResult(
        version_id, await asyncio.to_thread(version_hash, dag), previous, is_new, built, diff, dag.name, job_id is None,
        job_id, catch_up_id=catch_up_id,
    )  # fmt: skip


def _check_deploy_order(dag_name: str, serving: store.VersionText, state: store.VersionState) -> None:
    """Raise DeployError if a later deploy already serves."""
    if serving.deploy_ticket > state.deploy_ticket:
        raise DeployError(
            f"Version {serving.yaml_hash[:12]} of {dag_name!r}, deployed after this one, already serves.",
            remedy="Deploy again to replace it.",
        )


def _was_overtaken(state: store.VersionState, serving: UUID | None) -> bool:
    """Return whether another version began to serve while this one was filled, so that it must catch up."""
    return state.serving_at_fill is not None and state.serving_at_fill != serving


async def roll_back(
    connection: Connection, dag_name: str, to: str | None = None, *, org_id: UUID = DEFAULT_ORG_ID
) -> DeployResult:
    """Make an older version serve again: the one with a hash that begins with `to`, or the previous one.

    Its datasets are served as they are, then they catch up. Tasks of the newer version are cancelled. The target is
    chosen from the version that serves at the time of the call: two concurrent rollbacks go back once.
    """
    target = _choose_rollback_target(dag_name, await store.list_versions(connection, org_id, dag_name), to)
    async with failpoints.transaction(connection, "roll_back"):
        await store.lock_dag(connection, org_id, dag_name)
        before = await store.find_version(connection, org_id, dag_name)
        version = await store.find_version(connection, org_id, dag_name, target)
        if before is None or version is None:
            raise _dag_not_found(dag_name)
        dag = await sql_yaml_analysis.load_dag(version.yaml)
        await store.request_serving(connection, version.id)
        catch_up_id = None
        if before.id != version.id:
            catch_up_id = await _swap_version(connection, org_id, dag, version.id, returning=True)
    task_ids = await store.find_obsolete_tasks(connection, before.id, version.id) if before.id != version.id else []
    answers = (await cancel_tasks(connection, task_ids)).values() if task_ids else ()
    cancelled = sum(answer is not Cancellation.OVER for answer in answers)
    diff = await asyncio.to_thread(diff_dags, await sql_yaml_analysis.load_dag(before.yaml), dag)
    diff = replace(diff, there=frozenset(rebuild.dataset for rebuild in diff.rebuilt))
    return DeployResult(
        version.id, version.yaml_hash, before.id, False, (), diff, dag_name, cancelled=cancelled,
        catch_up_id=catch_up_id,
    )  # fmt: skip


async def preload_dags(
    connection: Connection, dag_name: str, to: str | None = None, *, org_id: UUID = DEFAULT_ORG_ID
) -> None:
    """Load the versions that a deploy or rollback needs, so that its transaction does not wait for the analysis."""
    versions = await store.list_versions(connection, org_id, dag_name)
    older = find_previous_version(versions)
    version_ids = [row.id for row in versions if row.serving or row is older or (to and row.yaml_hash.startswith(to))]
    for version_id in version_ids[:MAX_PRELOADED]:
        version = await store.find_version(connection, org_id, dag_name, version_id)
        if version is not None:
            await sql_yaml_analysis.load_dag(version.yaml)


def first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")[:300]


async def diff_with_serving(
    connection: Connection, text: str, file: str = "dag.yaml", *, org_id: UUID = DEFAULT_ORG_ID
) -> DagDiff:
    """Return what a deploy would change."""
    dag = await sql_yaml_analysis.load_dag(text, file)
    before = await store.find_version(connection, org_id, dag.name)
    diff = await asyncio.to_thread(diff_dags, await sql_yaml_analysis.load_dag(before.yaml) if before else None, dag)
    reusable = await store.find_existing_outputs(
        connection, org_id, dag.name, await asyncio.to_thread(dataset_hashes, dag), find_output_keys(dag)
    )
    return replace(diff, there=frozenset(rebuild.dataset for rebuild in diff.rebuilt if rebuild.dataset in reusable))


def _dag_not_found(dag_name: str) -> NotFoundError:
    return NotFoundError(f"There is no DAG {dag_name!r:.60}.", remedy="'aaiclick dag ls' lists them.")


def find_previous_version(versions: list[store.DagVersionRow]) -> store.DagVersionRow | None:
    """Return the newest version (`versions` is newest first) before the serving one that was ready."""
    serving = next((index for index, row in enumerate(versions) if row.serving), len(versions))
    return next((row for row in versions[serving + 1 :] if row.ready_at is not None), None)


def _choose_rollback_target(dag_name: str, versions: list[store.DagVersionRow], to: str | None) -> UUID:
    """Return the id of the version to roll back to."""
    if not any(row.serving for row in versions):
        raise _dag_not_found(dag_name)
    if to is None:
        before = find_previous_version(versions)
        if before is None:
            raise DeployError(f"The DAG {dag_name!r} has no previous version.")
        return before.id
    matching = [row for row in versions if row.yaml_hash.startswith(to) and row.ready_at is not None]
    if len(matching) != 1:
        count = "no version" if not matching else f"{len(matching)} versions"
        raise DeployError(
            f"The DAG {dag_name!r} has {count} with a hash that begins with {to!r:.70}.",
            remedy=f"'aaiclick dag versions {dag_name}' lists them.",
        )
    return matching[0].id


async def _add_version(
    connection: Connection, org_id: UUID, dag: Dag, text: str, by: UUID | None, roles: Collection[str] | None
) -> tuple[UUID, bool, tuple[str, ...]]:
    content_hash = await asyncio.to_thread(version_hash, dag)
    version_id = await store.add_version(connection, org_id, dag.name, content_hash, text, by)
    if version_id is None:
        if roles is not None:  # an existing version must not reveal that hidden datasets exist
            await _find_external_datasets(connection, org_id, dag, roles)
        versions = await store.list_versions(connection, org_id, dag.name)
        version = next(row for row in versions if row.yaml_hash == content_hash)
        built_names = (
            ()
            if version.ready_at
            else await store.find_outputs_built_for(connection, version.id, find_output_keys(dag))
        )
        return version.id, False, built_names
    external = await _find_external_datasets(connection, org_id, dag, roles)
    hashes, ids, built_names = await asyncio.to_thread(dataset_hashes, dag), dict[str, UUID](), list[str]()
    for definition in dag.jobs:
        for index, output in enumerate(definition.outputs):
            storage = output.storage.model_dump(exclude_defaults=True)
            ids[output.name] = await store.ensure_dataset(connection, org_id, dag.name, definition.name, index, storage)
            new_generation = uuid4()
            generation, created = await store.ensure_dataset_version(
                connection, ids[output.name], hashes[output.name], new_generation,
                _make_location(output, new_generation), version_id, output.range,
            )  # fmt: skip
            if created:
                built_names.append(output.name)
            await store.set_dataset_version(connection, version_id, ids[output.name], generation)
            if output.has_quarantine:
                ids[output.name + REJECTED_SUFFIX] = await _add_rejected(
                    connection, org_id, dag.name, definition.name, index, hashes[output.name], version_id
                )
    definitions = await asyncio.to_thread(
        lambda: [_build_definition(definition, ids, external) for definition in dag.jobs]
    )
    await store.add_definitions(connection, org_id, dag.name, version_id, definitions)
    return version_id, True, tuple(built_names)


async def _add_rejected(
    connection: Connection, org_id: UUID, dag_name: str, job: str, index: int, output_hash: str, version_id: UUID
) -> UUID:
    """Add the dataset of the rejected rows of an output, with a generation per generation of the output.

    It is not filled: it gets rows with the next update of the output.
    """
    dataset_id = await store.ensure_dataset(connection, org_id, dag_name, job, REJECTED_INDEX + index, {})
    generation, _ = await store.ensure_dataset_version(
        connection, dataset_id, output_hash, new_generation := uuid4(), f"dataset_{new_generation.hex}", None, None
    )
    await store.set_dataset_version(connection, version_id, dataset_id, generation)
    return dataset_id


async def _check_settings(connection: Connection, dag: Dag, text: str, file: str, org_id: UUID) -> None:
    """Reject definitions with a runtime that is not configured, and files outside the organisation's prefixes."""
    if all(definition.runtime in LOCAL_RUNTIMES and not _writes_files(definition) for definition in dag.jobs):
        return
    settings, org_slug = get_settings(), (await get_org(connection, org_id)).slug
    problems = await sql_yaml_analysis.locate_findings(text, find_unknown_runtimes(dag, settings.runtimes, org_slug))
    problems += await sql_yaml_analysis.locate_findings(
        text, find_foreign_prefixes(dag, settings.parquet_prefixes, org_slug)
    )
    if problems:
        raise DagError(file, problems)


async def _find_external_datasets(
    connection: Connection, org_id: UUID, dag: Dag, roles: Collection[str] | None
) -> dict[str, UUID]:
    """Return the datasets of other DAGs that this one reads; hidden ones count as unpublished."""
    outputs = {*find_output_keys(dag), *(name + REJECTED_SUFFIX for name in find_rejected_keys(dag))}
    names = sorted({
        *(input_.dataset for definition in dag.jobs for input_ in definition.inputs if input_.dataset),
        *(name for definition in dag.jobs for name in find_test_references(definition) if name not in outputs),
    })  # fmt: skip
    datasets = await store.find_datasets_by_name(connection, org_id, names, roles)
    for name in names:
        if name not in datasets:
            raise DeployError(
                f"The DAG {dag.name!r} reads the dataset {name!r}, which no DAG publishes.",
                remedy="Deploy the DAG that publishes it first.",
            )
    return {name: row.id for name, row in datasets.items()}


def _make_location(output: Output, generation: UUID) -> str:
    """Return the storage location of a generation: a table, or a prefix of files."""
    if output.storage.glob is not None:
        return f"{str(output.storage.prefix).rstrip('/')}/{output.storage.glob}"
    if output.storage.kind == "parquet":
        return f"{str(output.storage.prefix).rstrip('/')}/{generation}/"
    return f"dataset_{generation.hex}"


def _writes_files(spec: DefinitionSpec) -> bool:
    return any(output.storage.kind == "parquet" for output in spec.outputs)


def _build_definition(
    definition: DefinitionSpec, ids: dict[str, UUID], external: dict[str, UUID]
) -> store.NewDefinition:
    def dump(model: Any) -> dict[str, object] | None:
        return None if model is None else model.model_dump(mode="json")

    inputs = [external[input_.dataset] if input_.dataset else ids[str(input_.output)] for input_ in definition.inputs]
    return store.NewDefinition(
        name=definition.name,
        activation=definition.activation,
        runtime="dispatcher" if definition.runtime == "pool" and _writes_files(definition) else definition.runtime,
        operator=definition.operator,
        source=dump(definition.source),
        bootstrap=dump(definition.bootstrap),
        execution_strategy=definition.execution_strategy,
        idle_timeout=definition.idle_timeout,
        config=definition.config,
        config_hash=config_hash(definition),
        spec=definition.model_dump(mode="json", exclude_defaults=True),
        input_datasets=[str(dataset_id) for dataset_id in inputs],
        output_datasets=[str(ids[output.name]) for output in definition.outputs],
        update_strategy=definition.update_strategy,
        unique_key=definition.unique_key or None,
        scaling=dump(definition.scaling),
        timeout_seconds=_find_timeout(definition),
        heartbeat_timeout_seconds=definition.heartbeat_timeout_seconds,
        max_attempts=definition.max_attempts,
        status="Pending" if definition.activation == "source" else "Idle",
        rejected_datasets=[
            str(ids[output.name + REJECTED_SUFFIX]) if output.has_quarantine else None for output in definition.outputs
        ],
        reference_datasets=[str(ids.get(name) or external[name]) for name in find_test_references(definition)],
    )


def _find_timeout(definition: DefinitionSpec) -> int | None:
    """Return the timeout of a definition: an always-on source has no default one, its lease shows that it is alive."""
    if definition.timeout_seconds is None and isinstance(definition.source, AlwaysOnSource):
        return UNLIMITED_SECONDS
    return definition.timeout_seconds


async def _swap_version(
    connection: Connection, org_id: UUID, dag: Dag, version_id: UUID, *, returning: bool = False
) -> int | None:
    """Make a version serve. If it served before, return the job that brings it up to date."""
    published = {publication.output: publication.name or publication.output for publication in dag.publish}
    names = {
        output_key: published.get(output, f"{dag.name}.{output}")
        for output, output_key in find_output_keys(dag).items()
    }
    names |= {
        key: names[find_output_keys(dag)[output]] + REJECTED_SUFFIX for output, key in find_rejected_keys(dag).items()
    }
    await _check_names(connection, org_id, dag, set(names.values()))
    now = await read_clock(connection)
    next_runs = {
        definition.name: following
        for definition in dag.jobs
        if isinstance(definition.source, CronSource)
        and (following := parse_schedule(definition.source.schedule, definition.source.timezone).next_run(now))
        is not None
    }
    try:
        await store.set_serving_version(connection, org_id, dag.name, version_id, names, next_runs)
    except asyncpg.UniqueViolationError:  # another DAG took the name since the check
        raise DeployError(
            f"Another DAG published a dataset under a name of {dag.name!r} meanwhile.",
            remedy="Publish under another name.",
        ) from None
    positions = find_output_keys(dag)
    policies = {
        positions[output.name]: output.freshness.to_policy()
        for definition in dag.jobs
        for output in definition.outputs
        if output.freshness is not None
    }
    await set_policies(connection, org_id, dag.name, policies)
    await store.set_ready(connection, version_id)
    return await store.start_catch_up_job(connection, org_id, dag.name, version_id, check_all=returning)


async def _check_names(connection: Connection, org_id: UUID, dag: Dag, names: set[str]) -> None:
    for name, row in (await store.find_datasets_by_name(connection, org_id, sorted(names))).items():
        if row.producer_dag_name != dag.name:
            raise DeployError(
                f"The dataset {name!r} is published by the DAG {row.producer_dag_name!r}.",
                remedy="A dataset has one producer: publish it under another name.",
            )
