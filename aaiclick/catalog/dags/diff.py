"""Differences between two versions of a DAG, and the datasets that must be rebuilt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from aaiclick.catalog.dags.hashing import (
    base_output,
    canonical_dag,
    canonical_definition,
    config_hash,
    dataset_hashes,
    find_output_keys,
    find_producers,
    version_hash,
)
from aaiclick.catalog.dags.model import Dag

RebuildReason = Literal["new", "changed", "downstream"]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that was added, removed or changed; None where it is absent."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A dataset that gets a new version, the reason, and the changed definitions that caused it."""

    dataset: str
    job: str
    why: RebuildReason
    because_of: tuple[str, ...]


@dataclass(frozen=True)
class DagDiff:
    """The changes from one version to another. Datasets that are not in `rebuilt` keep their data.

    `there` are rebuilt datasets that are served from the rows of an earlier version.
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
    """Compare a version (None: first deploy) with another."""
    if before is not None and version_hash(before) == version_hash(after):
        return DagDiff((), (), {}, (), (), tuple(dataset_hashes(after)), ())
    old = {job.name: job for job in before.jobs} if before else {}
    new = {job.name: job for job in after.jobs}
    changed = {
        name: tuple(_diff_fields(canonical_definition(old[name]), canonical_definition(new[name]), ""))
        for name in new
        if name in old and canonical_definition(old[name]) != canonical_definition(new[name])
    }
    rebuilt = _find_rebuilds(before, after)
    rebuilt_names = {rebuild.dataset for rebuild in rebuilt}
    old_places = find_output_keys(before) if before else {}
    still_made = set(find_output_keys(after).values())
    return DagDiff(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=changed,
        dag_fields=tuple(_diff_fields(_dag_fields(before) if before else {}, _dag_fields(after), "")),
        rebuilt=rebuilt,
        kept=tuple(name for name in find_producers(after) if name not in rebuilt_names),
        dropped=tuple(sorted(name for name, key in old_places.items() if key not in still_made)),
    )


def _dag_fields(dag: Dag) -> dict[str, object]:
    return {key: value for key, value in canonical_dag(dag).items() if key != "jobs"}


def _diff_fields(before: object, after: object, field: str) -> list[FieldChange]:
    """Return the differences, recursively in mappings; lists are compared as wholes."""
    if before == after:
        return []
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return [FieldChange(field, before, after)]
    old, new = cast(dict[str, Any], before), cast(dict[str, Any], after)
    names = [*old, *(key for key in new if key not in old)]
    return [
        change
        for key in names
        for change in _diff_fields(old.get(key), new.get(key), f"{field}.{key}".removeprefix("."))
    ]


def _find_rebuilds(before: Dag | None, after: Dag) -> tuple[Rebuild, ...]:
    old_hashes = (
        {find_output_keys(before)[name]: dataset_hash for name, dataset_hash in dataset_hashes(before).items()}
        if before
        else {}
    )
    old_definitions = {definition.name: definition for definition in before.jobs} if before else {}
    new_hashes, new_producers, new_places = dataset_hashes(after), find_producers(after), find_output_keys(after)
    causes: dict[str, set[str]] = {}
    rebuilt: list[Rebuild] = []
    for name, dataset_hash in new_hashes.items():
        definition = new_producers[name]
        key = new_places[name]
        if old_hashes.get(key) == dataset_hash:
            causes[name] = set()
            continue
        upstream_causes = {
            cause for entry in definition.inputs if entry.output for cause in causes[base_output(entry.output, causes)]
        }
        if key not in old_hashes:
            reason: RebuildReason = "new"
        elif config_hash(definition) == config_hash(old_definitions[definition.name]) and upstream_causes:
            reason = "downstream"
        else:
            reason = "changed"
        causes[name] = upstream_causes if reason == "downstream" else upstream_causes | {definition.name}
        rebuilt.append(Rebuild(name, definition.name, reason, tuple(sorted(causes[name]))))
    return tuple(rebuilt)
