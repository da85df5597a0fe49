"""Results of tasks inside JSON: `{"object_type": "task", "task_id": "…"}` stands for what that task returns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

RESULT = "task"
TABLES = ("object", "view")
_TABLE = re.compile(r"t\d{1,19}")


def tables_in(value: Any) -> set[str]:
    """The temporary tables behind the Objects and Views in deserialised JSON."""
    return {name for name in table_ids_in(value) if is_temporary(name)}


def is_temporary(name: Any) -> bool:
    return isinstance(name, str) and _TABLE.fullmatch(name) is not None


def table_ids_in(value: Any) -> Iterator[Any]:
    """What Objects and Views in deserialised JSON say of their tables, be it a name or not."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if fields.get("object_type") in TABLES and "table_id" in fields:
            yield fields["table_id"]
        else:
            for item in fields.values():
                yield from table_ids_in(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from table_ids_in(item)


def results_needed(value: Any) -> set[int]:
    """Ids of the tasks whose results appear in deserialised JSON."""
    found: set[int] = set()
    resolve(value, _Collector(found))
    return found


class _Collector(dict[int, Any]):
    def __init__(self, found: set[int]) -> None:
        super().__init__()
        self._found = found

    def __missing__(self, key: int) -> None:
        self._found.add(key)


def resolve(value: Any, results: Mapping[int, Any]) -> Any:
    """Deserialised JSON with every result in its place; `results` are deserialised too."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if fields.get("object_type") == RESULT and set(fields) == {"object_type", "task_id"}:
            return results[int(fields["task_id"])]
        return {key: resolve(item, results) for key, item in fields.items()}
    if isinstance(value, list):
        return [resolve(item, results) for item in cast("list[Any]", value)]
    return value
