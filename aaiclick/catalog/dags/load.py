"""Load a DAG file, or report every error in it.

    text ─► YAML tree (positions) ─► model + validation rules + operators (settings, SQL) ─► Dag with defaults applied

All checks run on the same tree, none hides another, and their findings are reported together, sorted by position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from aaiclick.catalog.dags.data_test_rules import has_quarantine
from aaiclick.catalog.dags.findings import Data, Finding, as_list, as_mapping, get_name
from aaiclick.catalog.dags.function_inputs import check_input_references
from aaiclick.catalog.dags.model import REJECTED_SUFFIX, Dag, normalize_secret_names
from aaiclick.catalog.dags.pydantic_error_messages import list_problems
from aaiclick.catalog.dags.validation import check_dag
from aaiclick.catalog.dags.yaml_tree import (
    MAX_BYTES,
    MAX_PROBLEMS,
    MappingNode,
    Node,
    Path,
    format_path,
    locate_path,
    parse_yaml,
    to_plain,
)
from aaiclick.catalog.errors import DagError, DagProblem, FilePosition, OperatorError, QueryRefusedError
from aaiclick.catalog.operators.config import default_registry
from aaiclick.catalog.operators.registry import OperatorDefinition, OperatorRegistry
from aaiclick.catalog.queries.column_lineage import trace_query
from aaiclick.catalog.queries.select_parser import find_datasets_read
from aaiclick.data.errors import suggest_name


def load_dag_file(path: FilePath | str, registry: OperatorRegistry | None = None) -> Dag:
    """Load a DAG from a file; raises DagError with all its errors."""
    try:
        with FilePath(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        what = f"The file cannot be read: {error.strerror}."
        raise DagError(str(path), [DagProblem(FilePosition(), "", what, "Check the path.")]) from None
    return load_dag(content, str(path), registry)


def load_dag(content: bytes | str, file: str = "dag.yaml", registry: OperatorRegistry | None = None) -> Dag:
    """Load a DAG from text; raises DagError with all its errors."""
    reading = parse_yaml(content)
    problems = list(reading.problems)
    root = reading.root
    if root is None:
        raise DagError(file, problems)
    data = to_plain(root)
    if not isinstance(root, MappingNode):
        problems.append(DagProblem(root.position, "", "The file is not a mapping.", "Begin with name: and jobs:."))
        raise DagError(file, problems)
    reported = {problem.position for problem in problems}
    problems.extend(problem for problem in _check_data(data, root, registry) if problem.position not in reported)
    if problems:
        raise DagError(file, problems[:MAX_PROBLEMS])
    return Dag.model_validate(_apply_defaults(data))


def _check_data(data: Data, root: Node, registry: OperatorRegistry | None) -> list[DagProblem]:
    """Return all problems of the parsed data."""
    problems = _check_model(data, root)
    operators = registry or default_registry()
    findings = [*check_dag(_add_sql_inputs(data)), *_check_operators(data, operators)]
    problems.extend(_locate_finding(finding, root) for finding in findings)
    for index, definition in enumerate(as_list(data.get("jobs"))):
        problems.extend(_check_settings(as_mapping(definition), ("jobs", index), root, operators))
    return problems


def _check_model(data: Data, root: Node) -> list[DagProblem]:
    try:
        Dag.model_validate(data)
    except ValidationError as error:
        return list_problems(error, root, (), Dag)
    return []


def locate_findings(content: bytes | str, findings: Iterable[Finding]) -> list[DagProblem]:
    """Add file positions to findings about the text of a DAG."""
    root = parse_yaml(content).root
    return [] if root is None else [_locate_finding(finding, root) for finding in findings]


def _locate_finding(finding: Finding, root: Node) -> DagProblem:
    position, located = locate_path(root, finding.path, key=finding.at_key)
    return DagProblem(position, format_path(located), finding.what, finding.remedy)


def _find_operator(definition: Data, registry: OperatorRegistry) -> OperatorDefinition | None:
    try:
        return registry.find(definition["operator"]) if isinstance(definition.get("operator"), str) else None
    except OperatorError:
        return None


def _check_settings(definition: Data, base: Path, root: Node, registry: OperatorRegistry) -> list[DagProblem]:
    """Return the problems of an operator's settings."""
    operator = _find_operator(definition, registry)
    config = definition.get("config", {})
    if operator is None or not isinstance(config, dict):
        return []
    try:
        operator.settings(as_mapping(config))
    except ValidationError as error:
        return list_problems(error, root, (*base, "config"), operator.config)
    return []


def _local_outputs(data: Data) -> set[str]:
    """Return the outputs of the DAG's own definitions."""
    outputs = [
        output for definition in as_list(data.get("jobs")) for output in as_list(as_mapping(definition).get("outputs"))
    ]
    names = {name: has_quarantine(output) for output in outputs if (name := get_name(output, "name")) is not None}
    return {*names, *(name + REJECTED_SUFFIX for name, quarantines in names.items() if quarantines)}


def _add_sql_inputs(data: Data) -> Data:
    """Return the data with `inputs` of SQL definitions filled in from their queries."""
    local = _local_outputs(data)

    def add_inputs(definition: Any) -> object:
        query = as_mapping(as_mapping(definition).get("config")).get("query")
        if as_mapping(definition).get("operator") != "sql" or "inputs" in definition or not isinstance(query, str):
            return definition
        try:
            return {**definition, "inputs": sorted(find_datasets_read(query) & local)}
        except QueryRefusedError:
            return definition

    return {**data, "jobs": [add_inputs(definition) for definition in as_list(data.get("jobs"))]}


def _check_operators(data: Data, registry: OperatorRegistry) -> Iterator[Finding]:
    """Yield findings about unknown operators and operators that do not fit the definition."""
    definitions = [as_mapping(entry) for entry in as_list(data.get("jobs"))]
    local = _local_outputs(data)
    for index, definition in enumerate(definitions):
        path: Path = ("jobs", index)
        operator = definition.get("operator")
        if not isinstance(operator, str):
            continue
        try:
            operator_definition = registry.find(operator)
        except OperatorError as error:
            yield Finding((*path, "operator"), error.what, error.remedy)
            continue
        activation = definition.get("activation")
        if activation in ("source", "reactive") and activation not in operator_definition.activations:
            only = " or ".join(sorted(operator_definition.activations))
            yield Finding((*path, "operator"), f"{operator} is for {only} definitions.", f"Use activation: {only}.")
        yield from _check_outputs(path, definition, operator_definition)
        yield from _check_query(path, definition, local) if operator == "sql" else _check_inputs(path, definition)
        if operator == "python":
            yield from check_input_references(path, definition)
        if operator == "postgres_read":
            yield from _check_cursor(path, definition, as_mapping(data.get("defaults")))


def _check_outputs(path: Path, definition: Data, operator: OperatorDefinition) -> Iterator[Finding]:
    count = len(as_list(definition.get("outputs")))
    where = (*path, "outputs") if "outputs" in definition else path
    if count < operator.min_outputs:
        yield Finding(where, f"{operator.name} makes an output.", "Add outputs: [NAME].")
    if operator.max_outputs is not None and count > operator.max_outputs:
        most = operator.max_outputs
        yield Finding(where, f"{operator.name} makes at most {most} output{'s'[: most != 1]}.", "Remove the others.")


def _check_cursor(path: Path, definition: Data, defaults: Data) -> Iterator[Finding]:
    strategy = definition.get("update_strategy", defaults.get("update_strategy"))
    if "cursor" in as_mapping(definition.get("config")) and strategy != "append":
        what = "A cursor needs update_strategy: append, since a run reads only the changed rows."
        yield Finding((*path, "config", "cursor"), what, "Add update_strategy: append and a unique_key.")


def _check_inputs(path: Path, definition: Data) -> Iterator[Finding]:
    if definition.get("activation") == "reactive" and "inputs" not in definition:
        yield Finding(path, "A reactive definition needs inputs.", "Add inputs: [OUTPUT].")


def _check_query(path: Path, definition: Data, local: set[str]) -> Iterator[Finding]:
    """Check the SQL of a definition: one SELECT over its inputs, and every column has a name.

    Without `inputs`, they are taken from the query.
    """
    query = as_mapping(definition.get("config")).get("query")
    if not isinstance(query, str):
        return
    where = (*path, "config", "query")
    try:
        read = find_datasets_read(query)
    except QueryRefusedError as error:
        yield Finding(where, error.what, error.remedy)
        return
    declared = {name for input_ in as_list(definition.get("inputs")) if (name := input_name(input_)) is not None}
    allowed = declared if "inputs" in definition else local
    for name in sorted(read - allowed):
        remedy = suggest_name(name, allowed) or "Add it to inputs."
        yield Finding(where, f"The query reads {name!r:.60}, which is not an input of the definition.", remedy)
    for name in sorted(declared - read):
        position = [input_name(input_) for input_ in as_list(definition.get("inputs"))].index(name)
        yield Finding((*path, "inputs", position), f"The query does not read {name!r:.60}.", "Remove the input.")
    if not read and "inputs" not in definition and definition.get("activation") == "reactive":
        yield Finding(where, "The query reads no dataset, so nothing ever starts this definition.", "Read an input.")
    try:
        unnamed = trace_query(query, dict.fromkeys(read)).unnamed
    except QueryRefusedError:  # a star over columns that are not known yet
        return
    for text in unnamed:
        yield Finding(where, f"The column {text:.60} has no name.", "Add AS name.")


def input_name(entry: Any) -> str | None:
    return (
        get_name(entry, "dataset") or get_name(entry, "output")
        if isinstance(entry, dict)
        else get_name(entry, "output")
    )


def _apply_defaults(data: Data) -> Data:
    """Return the data with defaults applied to every definition, and with the inputs of SQL filled in."""
    defaults = as_mapping(data.get("defaults"))
    definitions: list[Data] = []
    for definition in as_list(data["jobs"]):
        left_out = {"idle_timeout", "execution_strategy"} if definition["activation"] == "source" else set[str]()
        filled = {key: value for key, value in defaults.items() if key not in left_out} | definition
        declared = [as_mapping(normalize_secret_names(source.get("secrets"))) for source in (defaults, definition)]
        filled["secrets"] = declared[0] | declared[1]
        if filled["activation"] == "reactive":
            filled.setdefault("execution_strategy", "PerUpdate")
            filled["execution_strategy"] = filled["execution_strategy"] or "PerUpdate"
        if filled["operator"] == "sql" and "inputs" not in filled:
            filled["inputs"] = sorted(find_datasets_read(filled["config"]["query"]))
        definitions.append(filled)
    return {**data, "jobs": definitions, "defaults": {}}
