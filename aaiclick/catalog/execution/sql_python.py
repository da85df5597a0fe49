"""The operators `sql` and `python`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.execution.operator_run import OperatorRun, OutputRows
from aaiclick.catalog.operators.config import PythonConfig, SqlConfig
from aaiclick.catalog.queries.table_rewrite import prepare_query

Produced = Mapping[str, Any]


async def run_sql(run: OperatorRun) -> Produced:
    """Run one SELECT over the inputs."""
    settings = cast("SqlConfig", run.settings)
    prepared = prepare_query(settings.query, {name: run.table(name) for name in run.definition.inputs})
    (output,) = run.definition.outputs
    return {output: OutputRows(prepared.text, prepared.lineage)}


async def run_python(run: OperatorRun) -> Produced:
    """Call the user's function with the inputs as Objects, its arguments, and the event if it takes one."""
    settings = cast("PythonConfig", run.settings)
    assert run.scope.resolve is not None  # noqa: S101
    assert run.scope.call is not None  # noqa: S101
    function = run.scope.resolve(settings.function)
    arguments = {name: await run.input(name) for name in run.definition.inputs} | settings.arguments
    if "event" in inspect.signature(function).parameters:
        arguments["event"] = dict(run.event)
    return split_by_output(run, await run.scope.call(function, arguments))


def split_by_output(run: OperatorRun, value: object) -> Produced:
    """Return a function's result by output: the value itself, or a mapping if there are several outputs."""
    names = list(run.definition.outputs)
    if not names:
        return {}
    if len(names) == 1:
        return {names[0]: value}
    if value is None:
        return {}
    if not isinstance(value, dict) or not set(cast("dict[str, Any]", value)) <= set(names):
        raise OperatorError(
            f"The definition {run.definition.name!r} has the outputs {', '.join(names)}; its function returned others.",
            remedy="Return a dict of outputs by name.",
        )
    return cast("dict[str, Any]", value)
