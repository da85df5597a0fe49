"""Registration of dataset versions by range: a version that holds the positions `range_start` to `range_end`.

A dataset has one version for each configuration and range, however often and by how many callers it is registered. A
range without bounds is the version that serves. A range of a dataset whose files another program writes may lie at a
location of its own: it is read together with the others, and dependents run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import faults
from aaiclick.catalog.dags.rules import is_location
from aaiclick.catalog.running.parquet import is_foreign
from aaiclick.errors import ConflictError, ForbiddenError, RequestError
from aaiclick.settings import get_settings
from aaiclick.store import catalog_datasets as store
from aaiclick.store.catalog_datasets import Reader, VersionRange
from aaiclick.store.orgs import get_org

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


@dataclass(frozen=True, slots=True)
class Registered:
    """A version, whether this call made it, and the job that attaches its files if there are new ones."""

    id: UUID
    created: bool
    job_id: int | None = None


async def register_range(
    connection: Connection, reader: Reader, name: str, bounds: VersionRange, location: str | None = None
) -> Registered:
    """Register a version of a dataset that serves; returns the one there is if it was registered before."""
    if bounds.start is not None and bounds.end is not None and bounds.end < bounds.start:
        raise RequestError(
            f"The range ends ({bounds.end}) before it begins ({bounds.start}).", remedy="Give the first position first."
        )
    async with faults.transaction(connection, "register_version"):
        dataset = await store.find_dataset(connection, reader, name)
        if location is not None:
            await _check_location(connection, reader.org_id, dataset, location)
        version_id, created = await store.register_version(connection, dataset["version"], bounds, location)
        if not created or location is None or location == dataset["storage_location"]:
            return Registered(version_id, created)
        job_id = await store.rematerialize(connection, reader.org_id, dataset["id"], name)
        return Registered(version_id, created, job_id)


async def _check_location(connection: Connection, org_id: UUID, dataset: asyncpg.Record, location: str) -> None:
    """Refuse what is not a prefix with a glob in a place of the organisation."""
    if not is_foreign(dataset["storage_location"]):
        raise ConflictError(
            f"The dataset {dataset['name']!r} is written by its job, so a range of it has no location of its own.",
            remedy="Leave the location out, or give its output a storage with a glob.",
        )
    if not is_location(location):
        raise RequestError(
            f"{location!r:.120} is not a prefix with a glob.",
            remedy="Write s3://bucket/path/*.parquet or /directory/*.parquet, without '..'.",
        )
    org = (await get_org(connection, org_id))["slug"]
    own = [place for whose, place in get_settings().parquet_prefixes if whose == org]
    if not any(location.startswith(place) for place in own):
        raise ForbiddenError(
            f"The organisation {org!r} may not keep files at {location}.",
            remedy=f"Use a place below {', '.join(own)}." if own else "Set AAICLICK_PARQUET_PREFIXES.",
        )
