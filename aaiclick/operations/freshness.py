"""Operations on the freshness of datasets. Datasets that the actor's roles may not read are not found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aaiclick.api.freshness import DatasetFreshness
from aaiclick.catalog.freshness_forecast import list_forecasts
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.operations.operation import operation
from aaiclick.store.catalog.freshness import FreshnessRow

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@operation(Permission.READER, changes=False)
async def list_freshness(
    connection: Connection, actor: Actor, *, dataset: str | None = None, late: bool = False, limit: int = 1_000
) -> list[DatasetFreshness]:
    """List datasets with a freshness policy, those that are due first; `late`: those that are or will be late."""
    reader = await dataset_reader(connection, actor)
    forecasts = await list_forecasts(connection, reader, dataset=dataset, late=late, limit=limit)
    return [
        DatasetFreshness(
            dataset=row.name, dag=row.dag, job=row.job, policy=_describe_policy(row), state=forecast.state,
            updated_at=row.updated_at, due_at=row.due_at, expected_at=forecast.expected_at,
            causes=list(forecast.causes),
        )
        for row, forecast in forecasts
    ]  # fmt: skip


def _describe_policy(row: FreshnessRow) -> str:
    if row.max_age_seconds is None:
        days = "" if row.days == "*" else f" {row.days}"
        return f"by {row.by_time}{days} {row.timezone}"
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if row.max_age_seconds % seconds == 0:
            return f"at most {row.max_age_seconds // seconds}{unit} old"
    return f"at most {row.max_age_seconds}s old"
