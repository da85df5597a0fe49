"""Registration of dataset versions by range: the positions `range_start` to `range_end`.

A dataset has one version per configuration and range; repeated registration returns the same version. A range without
bounds is the serving version. A range of a dataset with external files may have its own location: it is read together
with the others, and its dependents run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import failpoints
from aaiclick.catalog.dags.validation import is_location
from aaiclick.catalog.execution.parquet_storage import is_external
from aaiclick.errors import ConflictError, ForbiddenError, RequestError
from aaiclick.settings import get_settings
from aaiclick.store.catalog import datasets as store
from aaiclick.store.catalog.datasets import Reader, ServedDataset, VersionRange
from aaiclick.store.tenancy.orgs import get_org

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """A version, whether this call created it, and the job that attaches its files if they are new."""

    id: UUID
    created: bool
    job_id: int | None = None


async def register_range(
    connection: Connection, reader: Reader, name: str, bounds: VersionRange, location: str | None = None
) -> RegisteredVersion:
    """Register a version of a serving dataset; return the existing one if it was registered before."""
    if bounds.start is not None and bounds.end is not None and bounds.end < bounds.start:
        raise RequestError(
            f"The range ends ({bounds.end}) before it begins ({bounds.start}).", remedy="Give the first position first."
        )
    async with failpoints.transaction(connection, "register_version"):
        dataset = await store.find_dataset(connection, reader, name)
        if location is not None:
            await _check_location(connection, reader.org_id, dataset, location)
        version_id, created = await store.register_version(connection, dataset.version, bounds, location)
        if not created or location is None or location == dataset.storage_location:
            return RegisteredVersion(version_id, created)
        job_id = await store.rematerialize(connection, reader.org_id, dataset.id, name)
        return RegisteredVersion(version_id, created, job_id)


async def _check_location(connection: Connection, org_id: UUID, dataset: ServedDataset, location: str) -> None:
    """Raise an error unless the location is a prefix with a glob that the organisation may use."""
    if not is_external(dataset.storage_location):
        raise ConflictError(
            f"The dataset {dataset.name!r} is written by its definition, so its ranges cannot have a location.",
            remedy="Leave the location out, or give its output a storage with a glob.",
        )
    if not is_location(location):
        raise RequestError(
            f"{location!r:.120} is not a prefix with a glob.",
            remedy="Write s3://bucket/path/*.parquet or /directory/*.parquet, without '..'.",
        )
    org_slug = (await get_org(connection, org_id)).slug
    own = [prefix for slug, prefix in get_settings().parquet_prefixes if slug == org_slug]
    if not any(location.startswith(prefix) for prefix in own):
        raise ForbiddenError(
            f"The organisation {org_slug!r} may not store files at {location}.",
            remedy=f"Use a location below {', '.join(own)}." if own else "Set AAICLICK_PARQUET_PREFIXES.",
        )
