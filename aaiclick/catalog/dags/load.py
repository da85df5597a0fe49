"""A DAG file as a DAG, or every error in it.

    text ─► tree (places) ─► model (shape) + rules (relations) + operators (settings, SQL) ─► Dag, defaults filled in

All checks look at the same tree, none hides another, and what they find is located, sorted and told at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from aaiclick.catalog.dags.explain import problems_of
from aaiclick.catalog.dags.model import Dag, names_of_secrets
from aaiclick.catalog.dags.rules import Data, Finding, findings, items, mapping, named
from aaiclick.catalog.dags.tree import MAX_BYTES, MAX_PROBLEMS, Mapping, Node, Path, field_of, locate, plain, read_tree
from aaiclick.catalog.errors import DagError, OperatorError, Place, Problem, QueryRefusedError
from aaiclick.catalog.operators.built_in import default_registry
from aaiclick.catalog.operators.registry import OperatorDefinition, Registry
from aaiclick.catalog.queries.lineage import trace
from aaiclick.catalog.queries.parse import datasets_read
from aaiclick.data.errors import nearest


def load_dag_file(path: FilePath | str, registry: Registry | None = None) -> Dag:
    """The DAG in a file; raises DagError with every error in it."""
    try:
        with FilePath(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        what = f"The file cannot be read: {error.strerror}."
        raise DagError(str(path), [Problem(Place(), "", what, "Check the path.")]) from None
    return load_dag(content, str(path), registry)


def load_dag(content: bytes | str, file: str = "dag.yaml", registry: Registry | None = None) -> Dag:
    """The DAG in a text; raises DagError with every error in it."""
    reading = read_tree(content)
    problems = list(reading.problems)
    root = reading.root
    if root is None:
        raise DagError(file, problems)
    data = plain(root)
    if not isinstance(root, Mapping):
        problems.append(Problem(root.place, "", "The file is not a mapping.", "Begin with name: and jobs:."))
        raise DagError(file, problems)
    found_before = {problem.place for problem in problems}
    problems.extend(problem for problem in _checked(data, root, registry) if problem.place not in found_before)
    if problems:
        raise DagError(file, problems[:MAX_PROBLEMS])
    return Dag.model_validate(_filled(data))


def _checked(data: Data, root: Node, registry: Registry | None) -> list[Problem]:
    """What is wrong with the data of a file."""
    problems = _shape(data, root)
    known = registry or default_registry()
    found = [*findings(_with_inputs(data)), *_operators(data, known)]
    problems.extend(_located(finding, root) for finding in found)
    for index, job in enumerate(items(data.get("jobs"))):
        problems.extend(_settings(mapping(job), ("jobs", index), root, known))
    return problems


def _shape(data: Data, root: Node) -> list[Problem]:
    try:
        Dag.model_validate(data)
    except ValidationError as error:
        return problems_of(error, root, (), Dag)
    return []


def located(content: bytes | str, found: Iterable[Finding]) -> list[Problem]:
    """What was found about a text that is a DAG, with its places."""
    root = read_tree(content).root
    return [] if root is None else [_located(finding, root) for finding in found]


def _located(finding: Finding, root: Node) -> Problem:
    place, found = locate(root, finding.path, key=finding.at_key)
    return Problem(place, field_of(found), finding.what, finding.remedy)


def _definition(job: Data, registry: Registry) -> OperatorDefinition | None:
    try:
        return registry.find(job["operator"]) if isinstance(job.get("operator"), str) else None
    except OperatorError:
        return None


def _settings(job: Data, base: Path, root: Node, registry: Registry) -> list[Problem]:
    """What is wrong with an operator's settings."""
    definition = _definition(job, registry)
    config = job.get("config", {})
    if definition is None or not isinstance(config, dict):
        return []
    try:
        definition.settings(mapping(config))
    except ValidationError as error:
        return problems_of(error, root, (*base, "config"), definition.config)
    return []


def _local(data: Data) -> set[str]:
    """The outputs of the DAG's own jobs."""
    outputs = [each for job in items(data.get("jobs")) for each in items(mapping(job).get("outputs"))]
    return {name for each in outputs if (name := named(each, "name")) is not None}


def _with_inputs(data: Data) -> Data:
    """The data as the rules see it: with the outputs that SQL reads where it does not say so itself."""
    local = _local(data)

    def completed(job: Any) -> Any:
        query = mapping(mapping(job).get("config")).get("query")
        if mapping(job).get("operator") != "sql" or "inputs" in job or not isinstance(query, str):
            return job
        try:
            return {**job, "inputs": sorted(datasets_read(query) & local)}
        except QueryRefusedError:
            return job

    return {**data, "jobs": [completed(job) for job in items(data.get("jobs"))]}


def _operators(data: Data, registry: Registry) -> Iterator[Finding]:
    """Unknown operators, and those that do not fit the job."""
    jobs = [mapping(each) for each in items(data.get("jobs"))]
    local = _local(data)
    for index, job in enumerate(jobs):
        path: Path = ("jobs", index)
        operator = job.get("operator")
        if not isinstance(operator, str):
            continue
        try:
            definition = registry.find(operator)
        except OperatorError as error:
            yield Finding((*path, "operator"), error.what, error.remedy)
            continue
        activation = job.get("activation")
        if activation in ("source", "reactive") and activation not in definition.activations:
            only = " or ".join(sorted(definition.activations))
            yield Finding((*path, "operator"), f"{operator} is for {only} jobs.", f"Use activation: {only}.")
        yield from _outputs(path, job, definition)
        yield from _query(path, job, local) if operator == "sql" else _needs_inputs(path, job)


def _outputs(path: Path, job: Data, definition: OperatorDefinition) -> Iterator[Finding]:
    count = len(items(job.get("outputs")))
    where = (*path, "outputs") if "outputs" in job else path
    if count < definition.min_outputs:
        yield Finding(where, f"{definition.name} makes an output.", "Add outputs: [NAME].")
    if definition.max_outputs is not None and count > definition.max_outputs:
        most = definition.max_outputs
        yield Finding(where, f"{definition.name} makes at most {most} output{'s'[: most != 1]}.", "Remove the others.")


def _needs_inputs(path: Path, job: Data) -> Iterator[Finding]:
    if job.get("activation") == "reactive" and "inputs" not in job:
        yield Finding(path, "A reactive job has inputs: what it reacts to.", "Add inputs: [OUTPUT].")


def _query(path: Path, job: Data, local: set[str]) -> Iterator[Finding]:
    """The SQL of a job: one SELECT, over its inputs, every column with a name. No `inputs`: they are taken from it."""
    query = mapping(job.get("config")).get("query")
    if not isinstance(query, str):
        return
    where = (*path, "config", "query")
    try:
        read = datasets_read(query)
    except QueryRefusedError as error:
        yield Finding(where, error.what, error.remedy)
        return
    declared = {name for each in items(job.get("inputs")) if (name := input_name(each)) is not None}
    known = declared if "inputs" in job else local
    for name in sorted(read - known):
        remedy = nearest(name, known) or "Add it to inputs."
        yield Finding(where, f"The query reads {name!r:.60}, which is not an input of the job.", remedy)
    for name in sorted(declared - read):
        position = [input_name(each) for each in items(job.get("inputs"))].index(name)
        yield Finding((*path, "inputs", position), f"The query does not read {name!r:.60}.", "Remove the input.")
    if not read and "inputs" not in job and job.get("activation") == "reactive":
        yield Finding(where, "The query reads no dataset, so nothing ever starts this job.", "Read an input.")
    try:
        unnamed = trace(query, dict.fromkeys(read)).unnamed
    except QueryRefusedError:  # a star over columns that are not known yet
        return
    for text in unnamed:
        yield Finding(where, f"The column {text:.60} has no name.", "Add AS name.")


def input_name(entry: Any) -> str | None:
    return named(entry, "dataset") or named(entry, "output") if isinstance(entry, dict) else named(entry, "output")


def _filled(data: Data) -> Data:
    """The data with defaults in every job that they concern, and the inputs of SQL written out."""
    defaults = mapping(data.get("defaults"))
    jobs: list[Data] = []
    for job in items(data["jobs"]):
        left_out = {"idle_timeout", "execution_strategy"} if job["activation"] == "source" else set[str]()
        filled = {key: value for key, value in defaults.items() if key not in left_out} | job
        declared = [mapping(names_of_secrets(each.get("secrets"))) for each in (defaults, job)]
        filled["secrets"] = declared[0] | declared[1]
        if filled["activation"] == "reactive":
            filled.setdefault("execution_strategy", "PerUpdate")
            filled["execution_strategy"] = filled["execution_strategy"] or "PerUpdate"
        if filled["operator"] == "sql" and "inputs" not in filled:
            filled["inputs"] = sorted(datasets_read(filled["config"]["query"]))
        jobs.append(filled)
    return {**data, "jobs": jobs, "defaults": {}}
