"""DAG files for commands: YAML as it is, and Python modules with `@dataset` functions as YAML."""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from aaiclick.catalog.errors import DagError, DagProblem, FilePosition
from aaiclick.errors import EntrypointError

if TYPE_CHECKING:
    from aaiclick.catalog.dags.model import Dag
    from aaiclick.catalog.python_dags import DatasetNode

_DEFINITION = re.compile(r"^jobs\[(\d+)\]\.?")


def read_checked(file: Path) -> str:
    """Validate a DAG file and return its YAML, so that errors are reported before connecting to a database."""
    return load_checked(file)[1]


def load_checked(file: Path) -> tuple[Dag, str]:
    """Load a DAG file, and check the functions of its definitions that can be imported here; also returns its YAML."""
    load = importlib.import_module("aaiclick.catalog.dags.load")  # slow import: sqlglot
    if file.suffix != ".py":
        dag_file: Dag = load.load_dag_file(file)
        text = file.read_text(encoding="utf-8-sig")
        _check_functions(file, dag_file, text)
        return dag_file, text
    text, nodes = render_module(file)
    try:
        dag_file = load.load_dag(text, str(file))
        _check_functions(file, dag_file, text)
    except DagError as error:
        raise DagError(str(file), [_locate_problem(problem, nodes) for problem in error.problems]) from None
    return dag_file, text


def render_module(file: Path) -> tuple[str, list[DatasetNode]]:
    """Import a Python file and write its datasets as YAML."""
    module = _module_name(file)
    authoring = importlib.import_module("aaiclick.catalog.python_dags")
    import_user_module = importlib.import_module("aaiclick.cli.entrypoint_import").import_user_module  # slow import
    sys.path.insert(0, str(Path.cwd()))
    authoring.forget_datasets(module)
    sys.modules.pop(module, None)
    try:
        loaded = import_user_module(module)
    except ModuleNotFoundError:
        raise EntrypointError(f"There is no file {file}.", remedy="Check the path.") from None
    nodes: list[DatasetNode] = authoring.list_datasets(module)
    if not nodes:
        raise EntrypointError(
            f"{file} declares no dataset.", remedy="Decorate a function: @dataset(source='@daily') of aaiclick.catalog."
        )
    description = (loaded.__doc__ or "").strip().partition("\n")[0] or None
    dag = authoring.build_dag(module, description)
    return yaml.safe_dump(dag, sort_keys=False, allow_unicode=True, width=120), nodes


def _module_name(file: Path) -> str:
    """The module of a file: workers import it by this name, from the directory where the command runs."""
    try:
        relative = file.resolve().relative_to(Path.cwd())
    except ValueError:
        raise EntrypointError(
            f"{file} is not below the current directory.",
            remedy="Run the command in the directory from which workers import the module.",
        ) from None
    return ".".join(relative.with_suffix("").parts)


def _check_functions(file: Path, dag: Dag, text: str) -> None:
    if any(definition.operator == "python" for definition in dag.jobs):
        functions = importlib.import_module("aaiclick.cli.dag_function_checks")  # slow import: pyarrow
        functions.check_python_functions(str(file), dag, text)


def _locate_problem(problem: DagProblem, nodes: list[DatasetNode]) -> DagProblem:
    """Move a problem from the rendered YAML to the declaration of its dataset."""
    match = _DEFINITION.match(problem.field)
    if match is None:
        return replace(problem, position=FilePosition())
    node = nodes[int(match[1])]
    field = f"{node.name}.{problem.field[match.end() :]}".rstrip(".")
    return replace(problem, position=FilePosition(node.line), field=field)
