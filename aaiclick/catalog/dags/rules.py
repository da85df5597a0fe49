"""What must hold between the fields of a job, and between the jobs of a DAG.

Rules look at the data as it was read, not at the typed model: an error in one field must not hide those in others. So
they take nothing for granted, and leave what has the wrong shape to the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from aaiclick.catalog.dags.graph import find_cycles
from aaiclick.catalog.dags.model import names_of_secrets
from aaiclick.catalog.dags.tree import Path
from aaiclick.data.errors import nearest
from aaiclick.data.types import is_type


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that is broken: at which path (its key, or its value), what, and what to do."""

    path: Path
    what: str
    remedy: str = ""
    at_key: bool = False


Data = dict[str, Any]
_GLOB = re.compile(r"(?!.*\.\.)(?!/)[A-Za-z0-9/_.=*-]*[A-Za-z0-9_.*-]")
_PREFIX = re.compile(r"(?!.*\.\.)(s3://[A-Za-z0-9][A-Za-z0-9.-]+/|/)[A-Za-z0-9/_.=-]*")


def mapping(value: Any) -> Data:
    return cast(Data, value) if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []


def named(value: Any, key: str) -> str | None:
    """The name in an item that is a name alone, or a mapping that holds it."""
    found = mapping(value).get(key) if isinstance(value, dict) else value
    return found if isinstance(found, str) else None


def effective(dag: Data, job: Data, key: str) -> Any:
    return job[key] if key in job else mapping(dag.get("defaults")).get(key)


def findings(dag: Data) -> Iterator[Finding]:
    """Everything that is wrong with a DAG as a whole."""
    jobs = [mapping(each) for each in items(dag.get("jobs"))]
    for index, job in enumerate(jobs):
        yield from _activation(("jobs", index), job)
        yield from _updates(("jobs", index), dag, job)
        yield from _inputs(("jobs", index), job)
        yield from _secrets(("jobs", index), dag, job)
    yield from _names(jobs)
    producers, repeated = _producers(jobs)
    yield from repeated
    yield from _references(jobs, producers)
    yield from _cycles(jobs, producers)
    yield from _publications(dag, producers)


def _activation(base: Path, job: Data) -> Iterator[Finding]:
    activation = job.get("activation")
    if activation == "source":
        if job.get("source") is None:
            yield Finding(
                base, "A source says what starts it.", "Add source: {kind: cron, schedule: …}, or another kind."
            )
        for key in ("execution_strategy", "idle_timeout"):
            if job.get(key) is not None:
                yield Finding((*base, key), f"{key} is for reactive jobs; this one is a source.", "Remove it.", True)
    elif activation == "reactive":
        for key in ("source", "bootstrap"):
            if job.get(key) is not None:
                remedy = "Remove it, or make the job activation: source."
                yield Finding((*base, key), f"{key} is for sources; this job is reactive.", remedy, True)


def _updates(base: Path, dag: Data, job: Data) -> Iterator[Finding]:
    if effective(dag, job, "update_strategy") == "append" and not job.get("unique_key"):
        path = (*base, "update_strategy") if "update_strategy" in job else base
        yield Finding(
            path,
            "append needs a unique_key, so that a task that runs twice adds nothing twice.",
            "Add unique_key: [columns], or use update_strategy: replace.",
        )
    seen: set[str] = set()
    for index, column in enumerate(items(job.get("unique_key"))):
        if isinstance(column, str) and column in seen:
            yield Finding((*base, "unique_key", index), f"The column {column!r:.60} is here twice.", "Keep one.")
        seen.add(str(column))
    for index, output in enumerate(items(job.get("outputs"))):
        storage = mapping(mapping(output).get("storage"))
        if storage.get("kind") == "parquet" and not storage.get("prefix"):
            path = (*base, "outputs", index, "storage")
            yield Finding(path, "parquet needs a prefix.", "Add prefix: s3://bucket/path/ or a directory.")
        elif storage.get("kind") == "parquet" and not _PREFIX.fullmatch(str(storage["prefix"])):
            path = (*base, "outputs", index, "storage", "prefix")
            yield Finding(
                path,
                "A prefix is s3://bucket/path/ or /directory/, of letters, digits and / _ . = -.",
                "Write it so, without '..'.",
            )
        yield from _foreign_files((*base, "outputs", index), dag, job, storage)
        bounds = items(mapping(output).get("range"))
        if len(bounds) == 2 and all(isinstance(each, int) for each in bounds) and bounds[0] > bounds[1]:
            path = (*base, "outputs", index, "range")
            yield Finding(path, "The range ends before it begins.", "Write [first, last].")
        for column, kind in mapping(mapping(output).get("columns")).items():
            if isinstance(kind, str) and not is_type(kind):
                path = (*base, "outputs", index, "columns", column)
                yield Finding(path, f"{kind!r:.60} is not a type.", "Write a ClickHouse type such as Nullable(String).")
        if storage.get("kind") == "parquet" and effective(dag, job, "runtime") == "lambda":
            path = (*base, "outputs", index, "storage")
            yield Finding(path, "Functions write no files.", "Use another runtime, or keep the output in ClickHouse.")


def is_location(text: str) -> bool:
    """Whether a text is a prefix with a glob of files below it."""
    prefix, _, glob = text.rpartition("/") if "*" not in text else _split(text)
    return _PREFIX.fullmatch(f"{prefix}/") is not None and _GLOB.fullmatch(glob) is not None


def _split(text: str) -> tuple[str, str, str]:
    fixed = text.partition("*")[0].rpartition("/")[0]
    return fixed, "/", text[len(fixed) + 1 :]


def _foreign_files(base: Path, dag: Data, job: Data, storage: Data) -> Iterator[Finding]:
    """Rules of outputs whose files another program writes."""
    glob = storage.get("glob")
    if glob is None:
        return
    path = (*base, "storage", "glob")
    if storage.get("kind") != "parquet":
        yield Finding(path, "A glob is for files.", "Add kind: parquet and a prefix, or leave the glob out.")
    elif not _GLOB.fullmatch(str(glob)):
        yield Finding(
            path,
            "A glob is a path below the prefix, of letters, digits and / _ . = - *.",
            "Write for example *.parquet or day=*/*.parquet.",
        )
    if (
        effective(dag, job, "update_strategy") == "append"
        or effective(dag, job, "execution_strategy") == "PerPartition"
    ):
        yield Finding(
            path,
            "Files of another writer are taken as they are, all of them.",
            "Use update_strategy: replace and no PerPartition for this job.",
        )
    if job.get("operator") not in ("python", "parquet_files"):
        yield Finding(
            path,
            f"The operator {job.get('operator')!r:.60} makes rows, and does not write files itself.",
            "Use the operator parquet_files, or python with a function that writes them.",
        )


def _inputs(base: Path, job: Data) -> Iterator[Finding]:
    seen: set[tuple[str, str]] = set()
    for index, entry in enumerate(items(job.get("inputs"))):
        path = (*base, "inputs", index)
        if isinstance(entry, dict):
            given = [key for key in ("output", "dataset") if mapping(entry).get(key) is not None]
            if len(given) != 1:
                said = "both" if given else "neither"
                yield Finding(
                    path,
                    f"An input is an output of this DAG or a dataset of another; this is {said}.",
                    "Write output: NAME or dataset: NAME.",
                )
                continue
            found = (given[0], str(mapping(entry)[given[0]]))
        else:
            found = ("output", str(entry))
        if found in seen:
            yield Finding(path, f"The input {found[1]!r:.60} is here twice.", "Keep one.")
        seen.add(found)


def _secrets(base: Path, dag: Data, job: Data) -> Iterator[Finding]:
    defaults = mapping(dag.get("defaults"))
    declared = {name for each in (defaults, job) for name in mapping(names_of_secrets(each.get("secrets")))}
    source = mapping(job.get("source"))
    used = list(_secret_uses(job.get("config"), (*base, "config")))
    if source.get("kind") == "webhook" and isinstance(source.get("secret"), str):
        used.append(((*base, "source", "secret"), str(source["secret"])))
    for path, name in used:
        if name not in declared:
            remedy = nearest(name, declared) or f"Add secrets: [{name:.63}] to the job."
            yield Finding(path, f"There is no secret {name!r:.60}.", remedy)


def _secret_uses(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, dict):
        found = mapping(value)
        if list(found) == ["secret"] and isinstance(found["secret"], str):
            yield (*path, "secret"), found["secret"]
        for key, part in found.items():
            yield from _secret_uses(part, (*path, key))
    for index, part in enumerate(items(value)):
        yield from _secret_uses(part, (*path, index))


def _names(jobs: list[Data]) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for index, job in enumerate(jobs):
        name = job.get("name")
        if isinstance(name, str) and first.setdefault(name, index) != index:
            yield Finding(("jobs", index, "name"), f"There are two jobs {name!r:.60}.", "Give each its own name.")


def _producers(jobs: list[Data]) -> tuple[dict[str, int], list[Finding]]:
    """Which job makes which output, and outputs that more than one makes."""
    producers: dict[str, int] = {}
    repeated: list[Finding] = []
    for index, job in enumerate(jobs):
        for position, output in enumerate(items(job.get("outputs"))):
            name = named(output, "name")
            if name is None:
                continue
            if name in producers:
                other = jobs[producers[name]].get("name")
                what = f"The output {name!r:.60} is already made by the job {other!r:.60}."
                remedy = "A dataset has one producer: give one of them another name."
                repeated.append(Finding(("jobs", index, "outputs", position), what, remedy))
            producers.setdefault(name, index)
    return producers, repeated


def _references(jobs: list[Data], producers: dict[str, int]) -> Iterator[Finding]:
    for index, job in enumerate(jobs):
        for position, entry in enumerate(items(job.get("inputs"))):
            name = named(entry, "output")
            if name is not None and name not in producers:
                remedy = nearest(name, producers) or "No job has an output."
                yield Finding(
                    ("jobs", index, "inputs", position),
                    f"No job of this DAG has the output {name!r:.60}.",
                    f"{remedy} For a dataset of another DAG write {{dataset: {name:.60}}}.",
                )


def _cycles(jobs: list[Data], producers: dict[str, int]) -> Iterator[Finding]:
    edges: dict[str, list[str]] = {}
    places: dict[tuple[str, str], Path] = {}
    for index, job in enumerate(jobs):
        edges[str(index)] = []
        for position, entry in enumerate(items(job.get("inputs"))):
            name = named(entry, "output")
            if name is not None and name in producers:
                edges[str(index)].append(str(producers[name]))
                places[str(index), str(producers[name])] = ("jobs", index, "inputs", position)
    for cycle in find_cycles(edges):
        shown = [str(jobs[int(each)].get("name")) for each in [*cycle, cycle[0]]]
        way = " → ".join(reversed(shown if len(shown) <= 12 else [*shown[:6], "…", *shown[-5:]]))
        path = places[cycle[0], cycle[1] if len(cycle) > 1 else cycle[0]]
        yield Finding(path, f"Jobs wait for each other: {way}.", "Take one of these inputs away.")


def _publications(dag: Data, producers: dict[str, int]) -> Iterator[Finding]:
    outputs: set[str] = set()
    names: set[str] = set()
    for index, entry in enumerate(items(dag.get("publish"))):
        output = named(entry, "output")
        if output is None:
            continue
        if output not in producers:
            remedy = nearest(output, producers) or "No job has an output."
            yield Finding(("publish", index), f"No job of this DAG has the output {output!r:.60}.", remedy)
        if output in outputs:
            yield Finding(("publish", index), f"The output {output!r:.60} is published twice.", "Keep one.")
        name = mapping(entry).get("name", output)
        if name in names and output not in outputs:
            yield Finding(("publish", index), f"The name {name!r:.60} is taken.", "Publish it under another name.")
        outputs.add(output)
        names.add(str(name))
