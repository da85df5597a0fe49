"""Secrets of a job, found where its task runs: DAGs and databases know only where they are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from aaiclick.catalog.errors import OperatorError


def find_secret(name: str, reference: str) -> str:
    kind, _, place = reference.partition(":")
    found = os.environ.get(place) if kind == "env" else _read(Path(place))
    if found is None:
        where = f"The variable {place}" if kind == "env" else f"The file {place}"
        raise OperatorError(f"{where}, the secret {name!r}, is not there.", remedy="Set it where the worker runs.")
    return found


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").rstrip("\n")
    except OSError:
        return None


def filled_in(value: Any, references: Mapping[str, str]) -> Any:
    """Settings with every `{secret: NAME}` replaced."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if list(fields) == ["secret"] and isinstance(fields["secret"], str) and fields["secret"] in references:
            return find_secret(fields["secret"], references[fields["secret"]])
        return {key: filled_in(part, references) for key, part in fields.items()}
    if isinstance(value, list):
        return [filled_in(part, references) for part in cast("list[Any]", value)]
    return value
