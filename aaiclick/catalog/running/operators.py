"""What `sql` and `python` do in a task."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.operators.built_in import PythonConfig, SqlConfig
from aaiclick.catalog.queries.dataset_sql import prepare_query
from aaiclick.catalog.running.run import OperatorRun, Rows

Produced = Mapping[str, Any]


async def run_sql(run: OperatorRun) -> Produced:
    """One SELECT over the inputs."""
    settings = cast("SqlConfig", run.settings)
    prepared = prepare_query(settings.query, {name: run.table(name) for name in run.work.inputs})
    (output,) = run.work.outputs
    return {output: Rows(prepared.text, prepared.lineage)}


async def run_python(run: OperatorRun) -> Produced:
    """A function of the user: it gets the inputs as Objects, its arguments, and the event if it asks for it."""
    settings = cast("PythonConfig", run.settings)
    assert run.scope.resolve is not None  # noqa: S101
    assert run.scope.call is not None  # noqa: S101
    function = run.scope.resolve(settings.function)
    given = {name: await run.input(name) for name in run.work.inputs} | settings.arguments
    if "event" in inspect.signature(function).parameters:
        given["event"] = dict(run.event)
    return by_output(run, await run.scope.call(function, given))


def by_output(run: OperatorRun, value: Any) -> Produced:
    """What a function returned, for each output: the value itself, or a mapping if there are several."""
    names = list(run.work.outputs)
    if not names:
        return {}
    if len(names) == 1:
        return {names[0]: value}
    if value is None:
        return {}
    if not isinstance(value, dict) or not set(cast("dict[str, Any]", value)) <= set(names):
        raise OperatorError(
            f"The job {run.work.name!r} has the outputs {', '.join(names)}, and its function did not return them.",
            remedy="Return a dict of outputs by name.",
        )
    return cast("dict[str, Any]", value)
