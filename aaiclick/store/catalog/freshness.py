"""Freshness of datasets: policies of the serving versions, and when the next update of each dataset is due."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.catalog.datasets import Reader
from aaiclick.store.catalog.freshness_policy import FreshnessPolicy
from aaiclick.store.statements import statement
from aaiclick.store.typed_rows import fetch_rows

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@dataclass(frozen=True, slots=True)
class FreshnessRow:
    """A dataset with a policy, its last update, and when the next one is due."""

    dataset_uuid: UUID
    name: str
    dag: str
    job: str
    max_age_seconds: int | None
    by_time: str | None
    timezone: str
    days: str
    updated_at: datetime | None
    due_at: datetime
    now: datetime

    @property
    def is_late(self) -> bool:
        return self.due_at <= self.now


@dataclass(frozen=True, slots=True)
class DefinitionRun:
    """A recent task of a serving definition; `id` is None if it has none."""

    definition_id: UUID
    dag: str
    job: str
    activation: str
    inputs: list[str]
    outputs: list[str]
    next_run_at: datetime | None
    paused_at: datetime | None
    id: int | None
    status: str | None
    created_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    error: str | None


async def set_policies(
    connection: Connection, org_id: UUID, dag_name: str, policies: Mapping[tuple[str, int], FreshnessPolicy]
) -> None:
    """Set the policies of a DAG's outputs (definition, index) when a version begins to serve."""
    rows = await connection.fetch(statement("list_freshness_datasets"), org_id, dag_name)
    await connection.execute(statement("delete_freshness"), org_id, dag_name)
    for row in rows:
        policy = policies.get((row["producer_job_name"], row["producer_output_index"]))
        if policy is None:
            continue
        updated_at = row["updated_at"]
        due_at = policy.first_due(row["now"]) if updated_at is None else policy.due_after(updated_at)
        await connection.execute(
            statement("insert_freshness"), row["id"], org_id, policy.max_age_seconds, policy.by_time, policy.timezone,
            policy.days, due_at,
        )  # fmt: skip


async def record_updates(connection: Connection, generations: Sequence[str]) -> None:
    """Set when the next updates are due, in the transaction that records updates of these generations."""
    if not generations:
        return
    for row in await connection.fetch(statement("list_updated_freshness"), list(generations)):
        policy = FreshnessPolicy(row["max_age_seconds"], row["by_time"], row["timezone"], row["days"])
        await connection.execute(
            statement("set_freshness_due"), row["dataset_uuid"], policy.due_after(row["updated_at"])
        )


async def list_freshness(
    connection: Connection,
    reader: Reader,
    *,
    dataset: str | None = None,
    due_before: datetime | None = None,
    after: FreshnessRow | None = None,
    limit: int = 1_000,
) -> list[FreshnessRow]:
    """List datasets with a policy that a reader may read, those that are due first; `after`: the next page."""
    roles = None if reader.roles is None else sorted(reader.roles)
    position = (None, None) if after is None else (after.due_at, after.dataset_uuid)
    return await fetch_rows(
        connection,
        FreshnessRow,
        statement("list_freshness"),
        reader.org_id,
        roles,
        dataset,
        due_before,
        limit,
        *position,
    )


async def list_upstream_runs(
    connection: Connection, org_id: UUID, datasets: Sequence[UUID], runs: int = 10
) -> list[DefinitionRun]:
    """List the definitions that datasets are computed by, each with its last tasks, newest first."""
    return await fetch_rows(connection, DefinitionRun, statement("list_upstream_runs"), org_id, list(datasets), runs)


async def list_dataset_names(connection: Connection, reader: Reader, datasets: Iterable[str]) -> dict[str, str]:
    """Return the names of those datasets that a reader may read, by id."""
    roles = None if reader.roles is None else sorted(reader.roles)
    ids = [UUID(dataset) for dataset in datasets]
    rows = await connection.fetch(statement("list_dataset_names"), reader.org_id, roles, ids)
    return {row["id"]: row["name"] for row in rows}


async def list_orgs_with_policies(connection: Connection) -> list[UUID]:
    """List the organisations that have freshness policies."""
    return [row["id"] for row in await connection.fetch(statement("list_orgs_with_policies"))]


async def get_forecast_end(connection: Connection, org_id: UUID, seconds: float) -> datetime:
    """Return the end of the time for which updates are predicted: so long after now and the last scheduled start."""
    return await connection.fetchval(statement("get_forecast_end"), org_id, seconds)
