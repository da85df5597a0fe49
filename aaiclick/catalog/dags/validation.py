"""Rules between the fields of a definition, and between the definitions of a DAG.

The rules check the parsed data, not the typed model, so that an error in one field does not hide errors in others.
Values of the wrong type are left to the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from aaiclick.catalog.dags.data_test_rules import check_tests, has_quarantine
from aaiclick.catalog.dags.findings import Data, Finding, as_list, as_mapping, get_name
from aaiclick.catalog.dags.freshness import check_freshness
from aaiclick.catalog.dags.model import REJECTED_SUFFIX, normalize_secret_names
from aaiclick.catalog.dags.toposort import find_cycles
from aaiclick.catalog.dags.yaml_tree import Path
from aaiclick.data.errors import suggest_name
from aaiclick.data.types import is_type

SYSTEM_DAG = "aaiclick"
"""Datasets of the system have this prefix (`aaiclick.catalog.system_datasets`)."""

_GLOB = re.compile(r"(?!.*\.\.)(?!/)[A-Za-z0-9/_.=*-]*[A-Za-z0-9_.*-]")
_PREFIX = re.compile(r"(?!.*\.\.)(s3://[A-Za-z0-9][A-Za-z0-9.-]+/|/)[A-Za-z0-9/_.=-]*")


def effective_value(dag: Data, definition: Data, key: str) -> Any:
    return definition[key] if key in definition else as_mapping(dag.get("defaults")).get(key)


def check_dag(dag: Data) -> Iterator[Finding]:
    """Yield all findings about a DAG."""
    definitions = [as_mapping(entry) for entry in as_list(dag.get("jobs"))]
    for index, definition in enumerate(definitions):
        yield from _check_activation(("jobs", index), definition)
        yield from _check_updates(("jobs", index), dag, definition)
        yield from _check_inputs(("jobs", index), definition)
        yield from _check_secrets(("jobs", index), dag, definition)
        yield from check_tests(("jobs", index), definition)
        yield from check_freshness(("jobs", index), definition)
    yield from _check_names(dag, definitions)
    producers, repeated = _find_producers(definitions)
    yield from repeated
    yield from _check_references(definitions, producers)
    yield from _check_cycles(definitions, producers)
    yield from _check_publications(dag, producers)


def _check_activation(base: Path, definition: Data) -> Iterator[Finding]:
    activation = definition.get("activation")
    if activation == "source":
        if definition.get("source") is None:
            yield Finding(base, "A source needs a trigger.", "Add source: {kind: cron, schedule: …}, or another kind.")
        for key in ("execution_strategy", "idle_timeout"):
            if definition.get(key) is not None:
                yield Finding(
                    (*base, key), f"{key} is for reactive definitions; this one is a source.", "Remove it.", True
                )
    elif activation == "reactive":
        for key in ("source", "bootstrap"):
            if definition.get(key) is not None:
                remedy = "Remove it, or set activation: source."
                yield Finding((*base, key), f"{key} is for sources; this definition is reactive.", remedy, True)


def _check_updates(base: Path, dag: Data, definition: Data) -> Iterator[Finding]:
    if effective_value(dag, definition, "update_strategy") == "append" and not definition.get("unique_key"):
        path = (*base, "update_strategy") if "update_strategy" in definition else base
        yield Finding(
            path,
            "append needs a unique_key, so that a task that runs twice adds no duplicate rows.",
            "Add unique_key: [columns], or use update_strategy: replace.",
        )
    columns: set[str] = set()
    for index, column in enumerate(as_list(definition.get("unique_key"))):
        if isinstance(column, str) and column in columns:
            yield Finding((*base, "unique_key", index), f"The column {column!r:.60} is listed twice.", "Keep one.")
        columns.add(str(column))
    for index, output in enumerate(as_list(definition.get("outputs"))):
        storage = as_mapping(as_mapping(output).get("storage"))
        if storage.get("kind") == "parquet" and not storage.get("prefix"):
            path = (*base, "outputs", index, "storage")
            yield Finding(path, "parquet needs a prefix.", "Add prefix: s3://bucket/path/ or a directory.")
        elif storage.get("kind") == "parquet" and not _PREFIX.fullmatch(str(storage["prefix"])):
            path = (*base, "outputs", index, "storage", "prefix")
            yield Finding(
                path,
                "A prefix is s3://bucket/path/ or /directory/, of letters, digits and / _ . = -.",
                "Use this form, without '..'.",
            )
        yield from _check_external_files((*base, "outputs", index), dag, definition, storage)
        bounds = as_list(as_mapping(output).get("range"))
        if len(bounds) == 2 and all(isinstance(bound, int) for bound in bounds) and bounds[0] > bounds[1]:
            path = (*base, "outputs", index, "range")
            yield Finding(path, "The range ends before it begins.", "Write [first, last].")
        for column, type_name in as_mapping(as_mapping(output).get("columns")).items():
            if isinstance(type_name, str) and not is_type(type_name):
                path = (*base, "outputs", index, "columns", column)
                yield Finding(
                    path, f"{type_name!r:.60} is not a type.", "Write a ClickHouse type such as Nullable(String)."
                )
        if storage.get("kind") == "parquet" and effective_value(dag, definition, "runtime") == "lambda":
            path = (*base, "outputs", index, "storage")
            yield Finding(
                path, "The lambda runtime cannot write files.", "Use another runtime, or keep the output in ClickHouse."
            )


def is_location(text: str) -> bool:
    """Return whether a text is a prefix followed by a glob."""
    prefix, _, glob = text.rpartition("/") if "*" not in text else _split_location(text)
    return _PREFIX.fullmatch(f"{prefix}/") is not None and _GLOB.fullmatch(glob) is not None


def _split_location(text: str) -> tuple[str, str, str]:
    fixed = text.partition("*")[0].rpartition("/")[0]
    return fixed, "/", text[len(fixed) + 1 :]


def _check_external_files(base: Path, dag: Data, definition: Data, storage: Data) -> Iterator[Finding]:
    """Yield findings about outputs with files that another program writes."""
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
        effective_value(dag, definition, "update_strategy") == "append"
        or effective_value(dag, definition, "execution_strategy") == "PerPartition"
    ):
        yield Finding(
            path,
            "External files are always read as a whole.",
            "Use update_strategy: replace, without PerPartition.",
        )
    if definition.get("operator") not in ("python", "parquet_files"):
        yield Finding(
            path,
            f"The operator {definition.get('operator')!r:.60} returns rows and cannot write external files.",
            "Use the operator parquet_files, or python with a function that writes the files.",
        )


def _check_inputs(base: Path, definition: Data) -> Iterator[Finding]:
    references: set[tuple[str, str]] = set()
    for index, entry in enumerate(as_list(definition.get("inputs"))):
        path = (*base, "inputs", index)
        if isinstance(entry, dict):
            keys = [key for key in ("output", "dataset") if as_mapping(entry).get(key) is not None]
            if len(keys) != 1:
                which = "both" if keys else "neither"
                yield Finding(
                    path,
                    f"An input is an output of this DAG or a dataset of another; this is {which}.",
                    "Write output: NAME or dataset: NAME.",
                )
                continue
            reference = (keys[0], str(as_mapping(entry)[keys[0]]))
        else:
            reference = ("output", str(entry))
        if reference in references:
            yield Finding(path, f"The input {reference[1]!r:.60} is listed twice.", "Keep one.")
        references.add(reference)


def _check_secrets(base: Path, dag: Data, definition: Data) -> Iterator[Finding]:
    defaults = as_mapping(dag.get("defaults"))
    declared = {
        name
        for source_ in (defaults, definition)
        for name in as_mapping(normalize_secret_names(source_.get("secrets")))
    }
    source = as_mapping(definition.get("source"))
    used = list(_find_secret_uses(definition.get("config"), (*base, "config")))
    if source.get("kind") == "webhook" and isinstance(source.get("secret"), str):
        used.append(((*base, "source", "secret"), str(source["secret"])))
    for path, name in used:
        if name not in declared:
            remedy = suggest_name(name, declared) or f"Add secrets: [{name:.63}] to the definition."
            yield Finding(path, f"There is no secret {name!r:.60}.", remedy)


def _find_secret_uses(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, dict):
        fields = as_mapping(value)
        if list(fields) == ["secret"] and isinstance(fields["secret"], str):
            yield (*path, "secret"), fields["secret"]
        for key, part in fields.items():
            yield from _find_secret_uses(part, (*path, key))
    for index, part in enumerate(as_list(value)):
        yield from _find_secret_uses(part, (*path, index))


def _check_names(dag: Data, definitions: list[Data]) -> Iterator[Finding]:
    if dag.get("name") == SYSTEM_DAG:
        what = f"The name {SYSTEM_DAG!r} is reserved for datasets of the system, such as {SYSTEM_DAG}.tests."
        yield Finding(("name",), what, "Choose another name.")
    first_index: dict[str, int] = {}
    for index, definition in enumerate(definitions):
        name = definition.get("name")
        if isinstance(name, str) and first_index.setdefault(name, index) != index:
            yield Finding(
                ("jobs", index, "name"), f"There are two definitions {name!r:.60}.", "Give each its own name."
            )


def _find_producers(definitions: list[Data]) -> tuple[dict[str, int], list[Finding]]:
    """Return the index of the definition that produces each output, and findings for duplicate outputs."""
    producers: dict[str, int] = {}
    repeated: list[Finding] = []
    for index, definition in enumerate(definitions):
        for position, output in enumerate(as_list(definition.get("outputs"))):
            name = get_name(output, "name")
            if name is None:
                continue
            if name in producers:
                other_name = definitions[producers[name]].get("name")
                what = f"The output {name!r:.60} is already produced by the definition {other_name!r:.60}."
                remedy = "A dataset has one producer: give one of them another name."
                repeated.append(Finding(("jobs", index, "outputs", position), what, remedy))
            producers.setdefault(name, index)
            if has_quarantine(output):
                producers.setdefault(name + REJECTED_SUFFIX, index)
    return producers, repeated


def _check_references(definitions: list[Data], producers: dict[str, int]) -> Iterator[Finding]:
    for index, definition in enumerate(definitions):
        for position, entry in enumerate(as_list(definition.get("inputs"))):
            name = get_name(entry, "output")
            if name is not None and name not in producers:
                remedy = suggest_name(name, producers) or "No definition has an output."
                yield Finding(
                    ("jobs", index, "inputs", position),
                    f"No definition of this DAG has the output {name!r:.60}.",
                    f"{remedy} For a dataset of another DAG write {{dataset: {name:.60}}}.",
                )


def _check_cycles(definitions: list[Data], producers: dict[str, int]) -> Iterator[Finding]:
    edges: dict[str, list[str]] = {}
    paths: dict[tuple[str, str], Path] = {}
    for index, definition in enumerate(definitions):
        edges[str(index)] = []
        for position, entry in enumerate(as_list(definition.get("inputs"))):
            name = get_name(entry, "output")
            if name is not None and name in producers:
                edges[str(index)].append(str(producers[name]))
                paths[str(index), str(producers[name])] = ("jobs", index, "inputs", position)
    for cycle in find_cycles(edges):
        names = [str(definitions[int(index_)].get("name")) for index_ in [*cycle, cycle[0]]]
        cycle_text = " → ".join(reversed(names if len(names) <= 12 else [*names[:6], "…", *names[-5:]]))
        path = paths[cycle[0], cycle[1] if len(cycle) > 1 else cycle[0]]
        yield Finding(path, f"Definitions form a cycle: {cycle_text}.", "Remove one of these inputs.")


def _check_publications(dag: Data, producers: dict[str, int]) -> Iterator[Finding]:
    outputs: set[str] = set()
    names: set[str] = set()
    for index, entry in enumerate(as_list(dag.get("publish"))):
        output = get_name(entry, "output")
        if output is None:
            continue
        if output not in producers:
            remedy = suggest_name(output, producers) or "No definition has an output."
            yield Finding(("publish", index), f"No definition of this DAG has the output {output!r:.60}.", remedy)
        if output in outputs:
            yield Finding(("publish", index), f"The output {output!r:.60} is published twice.", "Keep one.")
        name = as_mapping(entry).get("name", output)
        if name in names and output not in outputs:
            yield Finding(("publish", index), f"The name {name!r:.60} is taken.", "Publish it under another name.")
        outputs.add(output)
        names.add(str(name))
