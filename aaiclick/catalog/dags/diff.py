"""What changes between two versions of a DAG, and what has to be built again because of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from aaiclick.catalog.dags.identity import (
    canonical,
    canonical_job,
    config_hash,
    dataset_hashes,
    places,
    producers,
    version_hash,
)
from aaiclick.catalog.dags.model import Dag

Why = Literal["new", "changed", "downstream"]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that was set, removed or changed; None where it is absent."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A dataset that gets a new version, why, and the jobs whose change it is due to."""

    dataset: str
    job: str
    why: Why
    because_of: tuple[str, ...]


@dataclass(frozen=True)
class DagDiff:
    """The steps from one version to another. What is not in `rebuilt` keeps its data.

    `there` are those of them that were made in this way before: nothing is built, their rows are served again.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: dict[str, tuple[FieldChange, ...]]
    dag_fields: tuple[FieldChange, ...]
    rebuilt: tuple[Rebuild, ...]
    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    there: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.changed or self.dag_fields or self.rebuilt or self.dropped)


def diff_dags(before: Dag | None, after: Dag) -> DagDiff:
    """From a version (none: the first deploy) to another."""
    if before is not None and version_hash(before) == version_hash(after):
        return DagDiff((), (), {}, (), (), tuple(dataset_hashes(after)), ())
    old = {job.name: job for job in before.jobs} if before else {}
    new = {job.name: job for job in after.jobs}
    changed = {
        name: tuple(_changes(canonical_job(old[name]), canonical_job(new[name]), ""))
        for name in new
        if name in old and canonical_job(old[name]) != canonical_job(new[name])
    }
    rebuilt = _rebuilt(before, after)
    again = {each.dataset for each in rebuilt}
    old_places = places(before) if before else {}
    still_made = set(places(after).values())
    return DagDiff(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=changed,
        dag_fields=tuple(_changes(_outer(before) if before else {}, _outer(after), "")),
        rebuilt=rebuilt,
        kept=tuple(name for name in producers(after) if name not in again),
        dropped=tuple(sorted(name for name, place in old_places.items() if place not in still_made)),
    )


def _outer(dag: Dag) -> dict[str, Any]:
    return {key: value for key, value in canonical(dag).items() if key != "jobs"}


def _changes(before: Any, after: Any, field: str) -> list[FieldChange]:
    """Differences, as deep as mappings go; lists are compared as wholes."""
    if before == after:
        return []
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return [FieldChange(field, before, after)]
    old, new = cast(dict[str, Any], before), cast(dict[str, Any], after)
    names = [*old, *(key for key in new if key not in old)]
    return [
        change for key in names for change in _changes(old.get(key), new.get(key), f"{field}.{key}".removeprefix("."))
    ]


def _rebuilt(before: Dag | None, after: Dag) -> tuple[Rebuild, ...]:
    old_hashes = {places(before)[name]: each for name, each in dataset_hashes(before).items()} if before else {}
    old_jobs = {job.name: job for job in before.jobs} if before else {}
    new_hashes, new_producers, new_places = dataset_hashes(after), producers(after), places(after)
    causes: dict[str, set[str]] = {}
    rebuilt: list[Rebuild] = []
    for name, now in new_hashes.items():
        job = new_producers[name]
        place = new_places[name]
        if old_hashes.get(place) == now:
            causes[name] = set()
            continue
        due_to = {each for entry in job.inputs if entry.output for each in causes[entry.output]}
        if place not in old_hashes:
            why: Why = "new"
        elif config_hash(job) == config_hash(old_jobs[job.name]) and due_to:
            why = "downstream"
        else:
            why = "changed"
        causes[name] = due_to if why == "downstream" else due_to | {job.name}
        rebuilt.append(Rebuild(name, job.name, why, tuple(sorted(causes[name]))))
    return tuple(rebuilt)
