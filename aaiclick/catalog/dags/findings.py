"""Findings about a DAG file, and access to its parsed data, which may have any types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from aaiclick.catalog.dags.yaml_tree import Path


@dataclass(frozen=True, slots=True)
class Finding:
    """A violated rule: the path of the value or key, the message and the remedy."""

    path: Path
    what: str
    remedy: str = ""
    at_key: bool = False


Data = dict[str, Any]


def as_mapping(value: Any) -> Data:
    return cast(Data, value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []


def get_name(value: Any, key: str) -> str | None:
    """Return the name of an item that is a plain name or a mapping with the name under `key`."""
    name = as_mapping(value).get(key) if isinstance(value, dict) else value
    return name if isinstance(name, str) else None
