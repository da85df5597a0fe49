"""Previews of results that are plain values, without Arrow and ClickHouse."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

MAX_ROWS = 10
MAX_CHARACTERS = 2_000
PLAIN_PREFIX = '{"value"'
"""Beginning of an encoded literal of JSON types; see `aaiclick.data.io.literal_result_codec`."""


def preview_plain(form: object, literals: Mapping[str, str]) -> str | None:
    """Format a result that is one literal of JSON types; None for others."""
    fields = cast("dict[str, Any]", form) if isinstance(form, dict) else {}
    text = literals.get(str(fields.get("table_id"))) if fields.get("object_type") == "object" else None
    if text is None or not text.startswith(PLAIN_PREFIX):
        return None
    try:
        return shorten_text(format_plain(json.loads(text)["value"]))
    except (ValueError, KeyError, RecursionError):
        return None


def format_plain(value: object) -> str:
    items: list[object] = cast("list[object]", value) if isinstance(value, list) else []
    return f"{value!r}" if len(items) <= MAX_ROWS else f"{items[:MAX_ROWS]!r} … ({len(items):,} rows)"


def shorten_text(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"
