"""Placeholders of task results in JSON: `{"object_type": "task", "task_id": "…"}` stands for the task's result."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard, cast

TASK_RESULT = "task"
TABLE_OBJECT_TYPES = ("object", "view")
_TABLE = re.compile(r"t\d{1,19}")


def temporary_tables_in(value: object) -> set[str]:
    """The temporary tables behind the Objects and Views in deserialised JSON."""
    return {name for name in table_ids_in(value) if is_temporary(name)}


def is_temporary(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and _TABLE.fullmatch(name) is not None


def table_ids_in(value: object) -> Iterator[object]:
    """Table ids of the Objects and Views in deserialised JSON, valid names or not."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        if fields.get("object_type") in TABLE_OBJECT_TYPES and "table_id" in fields:
            yield fields["table_id"]
        else:
            for item in fields.values():
                yield from table_ids_in(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from table_ids_in(item)


def referenced_task_ids(value: object) -> set[int]:
    """Ids of the tasks that have placeholders in deserialised JSON."""
    task_ids: set[int] = set()
    resolve_placeholders(value, _TaskIdCollector(task_ids))
    return task_ids


class _TaskIdCollector(dict[int, object]):
    def __init__(self, found: set[int]) -> None:
        super().__init__()
        self._found = found

    def __missing__(self, key: int) -> None:
        self._found.add(key)


def resolve_placeholders(value: object, results: Mapping[int, object]) -> Any:
    """Replace placeholders in deserialised JSON by `results`, which are deserialised too."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        if fields.get("object_type") == TASK_RESULT and set(fields) == {"object_type", "task_id"}:
            return results[int(str(fields["task_id"]))]
        return {key: resolve_placeholders(item, results) for key, item in fields.items()}
    if isinstance(value, list):
        return [resolve_placeholders(item, results) for item in cast("list[object]", value)]
    return value
