"""DAGs in Python: `@dataset` and `sql_dataset` declare definitions, `render_dag` writes them as a DAG file.

    @dataset(source="0 6 * * *")
    def orders() -> pd.DataFrame: ...

    @dataset(publish=True, tests=[{"unique": "id"}])
    def paid_orders(orders: pd.DataFrame, least: float = 0) -> pd.DataFrame: ...

A module with such functions is a DAG. Both notations are deployed as YAML, so that everything else treats them alike.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast

from aaiclick.errors import SubmitError

Function = TypeVar("Function", bound=Callable[..., object])
VERSION_DIGITS = 12


class DatasetKeywords(TypedDict, total=False):
    """Options of a dataset: keys of a definition and of its output in a DAG file."""

    source: str | Mapping[str, object]
    publish: bool | str
    description: str
    inputs: Mapping[str, str] | Sequence[str]
    partition_by: str
    storage: Mapping[str, object]
    range: Sequence[int]
    columns: Mapping[str, str]
    lineage: Mapping[str, Sequence[str]]
    tests: Sequence[Mapping[str, object]]
    freshness: Mapping[str, object]
    bootstrap: Mapping[str, object]
    execution_strategy: Literal["PerUpdate", "PerPartition"]
    update_strategy: Literal["append", "replace"]
    unique_key: Sequence[str]
    runtime: str
    idle_timeout: str
    scaling: Mapping[str, int]
    timeout_seconds: int
    heartbeat_timeout_seconds: int
    max_attempts: int
    memoize: bool
    secrets: Sequence[str] | Mapping[str, str]


OUTPUT_KEYS = ("description", "partition_by", "storage", "range", "columns", "lineage", "tests", "freshness")
OWN_KEYS = ("source", "publish", "inputs")
KINDS = ("manual", "always_on")


@dataclass(frozen=True)
class DatasetNode:
    """A dataset that a module declares: a definition with one output."""

    name: str
    line: int
    operator: Literal["python", "sql"]
    config: Mapping[str, object]
    parameters: tuple[str, ...]
    options: DatasetKeywords


_declared: dict[str, dict[str, DatasetNode]] = {}
"""Datasets by module and name; a module that is loaded again replaces its datasets."""


def dataset(
    *, arguments: Mapping[str, object] | None = None, version: str | None = None, **options: Unpack[DatasetKeywords]
) -> Callable[[Function], Function]:
    """Declare a dataset that a function makes: its name is the dataset's, its parameters are the inputs.

    The function is not changed. A parameter with the name of another dataset of the module receives its rows, in the
    form of its annotation; `inputs` maps parameters to other names, also to datasets of other DAGs. `arguments` are
    constants. `source` starts it: a cron expression, "manual", "always_on" or a mapping as in a DAG file. A changed
    function rebuilds the dataset; `version` replaces the digest of its code.

    ```python
    @dataset(source="@daily", publish=True)
    def countries() -> list[dict[str, object]]:
        return [{"code": "DE"}, {"code": "FR"}]
    ```
    """
    _check_options(options, "@dataset")

    def declare(function: Function) -> Function:
        plain = getattr(function, "function", function)  # of a @task
        digest = version or _digest_code(plain)
        config: dict[str, object] = {"function": f"{plain.__module__}:{plain.__name__}", "version": digest}
        if arguments:
            config["arguments"] = dict(arguments)
        parameters = tuple(inspect.signature(plain).parameters)
        line = plain.__code__.co_firstlineno
        _declare(plain.__module__, DatasetNode(plain.__name__, line, "python", config, parameters, options))
        return function

    return declare


def sql_dataset(name: str, query: str, **options: Unpack[DatasetKeywords]) -> None:
    """Declare a dataset that a SELECT over other datasets makes.

    ```python
    sql_dataset("revenue", "SELECT day, sum(euros) AS euros FROM orders GROUP BY day", publish=True)
    ```
    """
    _check_options(options, "sql_dataset")
    frame = inspect.currentframe()
    assert frame is not None  # noqa: S101
    assert frame.f_back is not None  # noqa: S101
    caller = frame.f_back
    config = {"query": textwrap.dedent(query).strip()}
    _declare(caller.f_globals["__name__"], DatasetNode(name, caller.f_lineno, "sql", config, (), options))


def list_datasets(module: str) -> list[DatasetNode]:
    """List the datasets of a module in their order in the file."""
    return sorted(_declared.get(module, {}).values(), key=lambda node: node.line)


def forget_datasets(module: str) -> None:
    """Forget the datasets of a module, before it is loaded again."""
    _declared.pop(module, None)


def build_dag(module: str, description: str | None = None) -> dict[str, Any]:
    """Build the data of a DAG file from the datasets of a module; its name is the last part of the module's."""
    nodes = list_datasets(module)
    names = {node.name for node in nodes}
    dag: dict[str, Any] = {"name": module.rpartition(".")[2].lower()}
    if description:
        dag["description"] = description
    dag["jobs"] = [_build_definition(node, names) for node in nodes]
    published = [_build_publication(node) for node in nodes if node.options.get("publish")]
    return dag | ({"publish": published} if published else {})


def _declare(module: str, node: DatasetNode) -> None:
    _declared.setdefault(module, {})[node.name] = node


def _check_options(options: DatasetKeywords, decorator: str) -> None:
    for name in options:
        if name not in DatasetKeywords.__annotations__:
            close = difflib.get_close_matches(name, DatasetKeywords.__annotations__, 1)
            remedy = f"Did you mean {close[0]!r}?" if close else "The options are the keys of definitions and outputs."
            raise SubmitError(f"{decorator} has no option {name!r}.", remedy=remedy)


def _build_definition(node: DatasetNode, names: set[str]) -> dict[str, Any]:
    options: dict[str, Any] = dict(node.options)
    output = {"name": node.name} | {key: _to_plain(options[key]) for key in OUTPUT_KEYS if key in options}
    source = options.get("source")
    definition: dict[str, Any] = {
        "name": node.name,
        "activation": "reactive" if source is None else "source",
        "operator": node.operator,
    }
    if source is not None:
        definition["source"] = _build_source(source)
    if inputs := _find_inputs(node, names):
        definition["inputs"] = [name if name in names else {"dataset": name} for name in dict.fromkeys(inputs.values())]
    definition["outputs"] = [output if len(output) > 1 else node.name]
    definition |= {key: _to_plain(options[key]) for key in options if key not in (*OUTPUT_KEYS, *OWN_KEYS)}
    return definition | {"config": _build_config(node, inputs)}


def _find_inputs(node: DatasetNode, names: set[str]) -> dict[str, str]:
    """Find the inputs by parameter; the inputs of SQL have no parameters."""
    declared = node.options.get("inputs", ())
    named = dict(declared) if isinstance(declared, Mapping) else {name: name for name in declared}
    by_name = {name: name for name in node.parameters if name in names - {node.name} and name not in named}
    return {**by_name, **named}


def _build_config(node: DatasetNode, inputs: Mapping[str, str]) -> dict[str, Any]:
    config: dict[str, Any] = dict(node.config)
    arguments: dict[str, Any] = dict(config.get("arguments", {}))
    if node.operator == "python":
        arguments |= {parameter: {"input": name} for parameter, name in inputs.items() if parameter != name}
    return config | ({"arguments": _to_plain(arguments)} if arguments else {})


def _build_source(source: str | Mapping[str, object]) -> dict[str, object]:
    if not isinstance(source, str):
        return _to_plain(source)
    return {"kind": source} if source in KINDS else {"kind": "cron", "schedule": source}


def _build_publication(node: DatasetNode) -> str | dict[str, str]:
    publish = node.options.get("publish")
    return {"output": node.name, "name": publish} if isinstance(publish, str) else node.name


def _to_plain(value: object) -> Any:
    """Convert mappings and sequences to dicts and lists, which YAML can write."""
    if isinstance(value, Mapping):
        return {key: _to_plain(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_to_plain(item) for item in cast("Sequence[object]", value)]
    return value


def _digest_code(function: Callable[..., object]) -> str:
    """Digest of a function's code; comments, formatting and decorators make no difference."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        name = getattr(function, "__name__", repr(function))
        raise SubmitError(f"The code of {name} cannot be read.", remedy="Pass version= to @dataset.") from None
    [definition] = tree.body
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)  # noqa: S101
    definition.decorator_list = []
    return hashlib.sha256(ast.unparse(definition).encode()).hexdigest()[:VERSION_DIGITS]
