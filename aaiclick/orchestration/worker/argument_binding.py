"""Binding of arguments: results of other tasks, literals, Objects and Views become values of the annotated types."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast, get_args

from aaiclick.concurrent_map import map_concurrently
from aaiclick.data import is_reference, open_reference
from aaiclick.data.errors import ObjectNotFoundError
from aaiclick.data.io.argument_conversion import annotations_of, convert_argument
from aaiclick.data.io.literal_result_codec import EncodedLiteral
from aaiclick.orchestration.argument_serialisation import FAILURE, is_plain
from aaiclick.orchestration.argument_tables import TABLE_ID_KEY
from aaiclick.orchestration.failure_argument import TaskFailure
from aaiclick.orchestration.pg_lifecycle import AttemptTables
from aaiclick.orchestration.retry_policy import PermanentError
from aaiclick.orchestration.task_context import TaskScope
from aaiclick.store.engine.leases_and_outcomes import WAIT_ARGUMENT, Claim
from aaiclick.store.engine.queries import TaskResult
from aaiclick.store.engine.result_placeholders import referenced_task_ids, resolve_placeholders, temporary_tables_in


async def bind_arguments(
    scope: TaskScope,
    claim: Claim,
    function: Callable[..., object],
    tables: AttemptTables,
    on_resolved: Callable[[Mapping[str, object]], None] = lambda _: None,
) -> dict[str, Any]:
    """Decode arguments from JSON and resolve the results of other tasks.

    `on_resolved` receives them before Objects and literals are opened.
    """
    if claim.kwargs == "{}":
        on_resolved({})
        return {}
    arguments = json.loads(claim.kwargs)
    if WAIT_ARGUMENT in arguments:
        scope.wait_state = arguments[WAIT_ARGUMENT]
        if WAIT_ARGUMENT not in inspect.signature(function).parameters:
            del arguments[WAIT_ARGUMENT]
    needed = referenced_task_ids(arguments)
    results: Mapping[int, TaskResult] = {}
    if needed and claim.job_id is not None:
        results = await scope.gateway.task_results(sorted(needed))
        leaves = {task_id: _result_leaf(result) for task_id, result in results.items()}
        arguments = resolve_placeholders(arguments, leaves)
    on_resolved(cast("dict[str, object]", arguments))
    if f'"{FAILURE}"' in claim.kwargs or any(result.failure is not None for result in results.values()):
        arguments = _bind_failures(function, arguments)
    if TABLE_ID_KEY not in claim.kwargs and not any(
        result.result is not None and TABLE_ID_KEY in result.result for result in results.values()
    ):
        return cast("dict[str, Any]", arguments)
    try:
        opened = await _open_references(scope, arguments, tables)
    except ObjectNotFoundError as error:
        if error.address:
            raise
        raise _released_input_error(error, results) from error
    return await _convert_arguments(function, opened)


def digest_inputs(arguments: Mapping[str, object]) -> str:
    """Hash of arguments with resolved results: small values by their content, others by the id of their table."""
    text = json.dumps(arguments, sort_keys=True, default=_encode_literal)
    return hashlib.sha256(text.encode()).hexdigest()


def _encode_literal(value: object) -> object:
    if isinstance(value, EncodedLiteral):
        return ["literal", value.text]
    raise TypeError(f"{type(value).__name__} is not a JSON value.")


async def open_result(scope: TaskScope, result: TaskResult, tables: AttemptTables) -> object:
    """The value of a result of another task, held by this attempt; raises ObjectNotFoundError.

    A literal becomes a value: an Object of it would exist only as long as the other task.
    """
    leaf = _result_leaf(result)
    if isinstance(leaf, EncodedLiteral):
        return leaf.plain_value() if leaf.is_plain else leaf.rows().table
    granted = set(tables.granted)
    opened = await _open_references(scope, {"value": leaf}, tables)
    tables.granted = granted.union(tables.granted)
    return opened["value"]


async def _open_references(scope: TaskScope, arguments: object, tables: AttemptTables) -> dict[str, object]:
    """Open the Objects and Views in arguments; literals are left to the conversion, which may need no Object."""
    names = temporary_tables_in(arguments)
    literals: Mapping[str, str] = await scope.gateway.load_literals(sorted(names)) if names else {}
    tables.granted = names - set(literals)

    async def open_leaf(reference: dict[str, Any]) -> object:
        table_id = reference["table_id"]
        if table_id in literals and reference["object_type"] == "object":
            return EncodedLiteral(table_id, literals[table_id])
        return await open_reference(reference)

    return await map_leaves(arguments, is_reference, open_leaf)


def _bind_failures(function: Callable[..., object], arguments: dict[str, object]) -> dict[str, object]:
    """Replace failures by TaskFailure where the annotation of a parameter has it, else by None."""
    annotations = annotations_of(function)
    return {name: _bind_failure(value, annotations.get(name, Any)) for name, value in arguments.items()}


def _bind_failure(value: object, annotation: object) -> object:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        if fields.get("object_type") == FAILURE:
            return TaskFailure.from_json(fields) if _accepts_failure(annotation) else None
        return {name: _bind_failure(item, annotation) for name, item in fields.items()}
    if isinstance(value, list):
        items = cast("list[object]", value)
        return items if is_plain(items) else [_bind_failure(item, annotation) for item in items]
    return value


def _accepts_failure(annotation: object) -> bool:
    return annotation is TaskFailure or any(_accepts_failure(part) for part in get_args(annotation))


def _result_leaf(result: TaskResult) -> object:
    """The deserialised result of a task; a Literal if it is one."""
    if result.failure is not None:
        return json.loads(result.failure)
    if result.result is None:
        return None
    reference = json.loads(result.result)
    return reference if result.literal is None else EncodedLiteral(reference["table_id"], result.literal)


def _released_input_error(error: ObjectNotFoundError, results: Mapping[int, TaskResult]) -> PermanentError:
    """Error for an input with a dropped table; the remedy is to clear the task that produced it."""
    producers = [
        task
        for task, result in results.items()
        if result.result is not None and any(name in error.what for name in _table_names(result.result))
    ]
    remedy = (
        f"Create it again: aaiclick tasks clear {producers[0]}"
        if producers
        else "Create it again, and submit a new task."
    )
    return PermanentError(f"An input of this task was released. {error.what}", remedy=remedy)


def _table_names(text: str) -> set[str]:
    return temporary_tables_in(json.loads(text))


async def _convert_arguments(function: Callable[..., object], arguments: dict[str, object]) -> dict[str, Any]:
    """Convert Objects to the annotated types of the function's parameters."""
    annotations = annotations_of(function)
    return {name: await convert_argument(value, annotations.get(name, Any)) for name, value in arguments.items()}


async def map_leaves(value: object, matches: Callable[[Any], bool], change: Callable[[Any], Awaitable[object]]) -> Any:
    """Replace matching values in nested lists and dicts; lists of scalars are skipped by a check of their types."""
    if matches(value):
        return await change(value)
    if isinstance(value, dict):
        return {k: await map_leaves(item, matches, change) for k, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        if is_plain(items):
            return items
        return await map_concurrently(lambda item: map_leaves(item, matches, change), items)
    return value
