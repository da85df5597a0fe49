"""Results of tasks inside JSON: `{"object_type": "task", "task_id": "…"}` stands for what that task returns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

RESULT = "task"
TABLES = ("object", "view")
_TABLE = re.compile(r"t\d{1,19}")


def tables_in(value: Any) -> set[str]:
    """The temporary tables behind the Objects and Views in deserialised JSON."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if fields.get("object_type") in TABLES and isinstance(name := fields.get("table_id"), str):
            return {name} if _TABLE.fullmatch(name) else set()
        return set[str]().union(*map(tables_in, fields.values()))
    return set[str]().union(*map(tables_in, cast("list[Any]", value))) if isinstance(value, list) else set()


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
