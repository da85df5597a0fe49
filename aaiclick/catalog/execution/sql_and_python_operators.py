"""The operators `sql` and `python`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

from aaiclick.catalog.dags.function_inputs import EVENT_PARAMETER, assign_inputs
from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.execution.operator_run import OperatorRun, OutputRows
from aaiclick.catalog.operators.config import PythonConfig, SqlConfig
from aaiclick.catalog.queries.table_rewrite import prepare_query
from aaiclick.data.errors import ConversionError
from aaiclick.data.io.argument_conversion import annotations_of, convert_argument
from aaiclick.orchestration.retry_policy import PermanentError
from aaiclick.orchestration.typed_arguments import restore_arguments

Produced = Mapping[str, Any]


async def run_sql(run: OperatorRun) -> Produced:
    """Run one SELECT over the inputs."""
    settings = cast("SqlConfig", run.settings)
    prepared = prepare_query(settings.query, {name: run.table(name) for name in run.definition.inputs})
    (output,) = run.definition.outputs
    return {output: OutputRows(prepared.text, prepared.lineage)}


async def run_python(run: OperatorRun) -> Produced:
    """Call the function with the inputs in their annotated forms, its arguments, and the event if it takes one."""
    settings = cast("PythonConfig", run.settings)
    assert run.scope.resolve is not None  # noqa: S101
    assert run.scope.call is not None  # noqa: S101
    function = run.scope.resolve(settings.function)
    return split_by_output(run, await run.scope.call(function, await _bind_arguments(run, function, settings)))


async def _bind_arguments(run: OperatorRun, function: Callable[..., Any], settings: PythonConfig) -> dict[str, Any]:
    inputs = assign_inputs(run.definition.inputs, settings.arguments)
    annotations = annotations_of(function)
    constants = {name: value for name, value in settings.arguments.items() if name not in inputs}
    try:
        arguments = restore_arguments(function, constants)
    except ConversionError as error:
        raise PermanentError(error.what, remedy=error.remedy) from None
    for parameter, name in inputs.items():
        arguments[parameter] = await convert_argument(await run.input(name), annotations.get(parameter, Any))
    if EVENT_PARAMETER in inspect.signature(function).parameters:
        arguments[EVENT_PARAMETER] = dict(run.event)
    return arguments


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
