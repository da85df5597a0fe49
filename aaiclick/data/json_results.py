"""Results of tasks as JSON values: literals as they are; tables have none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from aaiclick.data.plain_value_preview import PLAIN_PREFIX
from aaiclick.errors import AaiclickError


class _NotJsonError(ValueError):
    """A result has a table, or a number that JSON does not have."""


def to_json_value(form: object, literals: Mapping[str, str]) -> Any:
    """The value of a result, if it consists of readable literals and JSON types; None for others."""
    try:
        return _convert(form, literals)
    except (ValueError, KeyError, TypeError, RecursionError, AaiclickError):
        return None


def _convert(form: object, literals: Mapping[str, str]) -> Any:
    if isinstance(form, list):
        return [_convert(item, literals) for item in cast("list[object]", form)]
    if not isinstance(form, dict):
        return form
    fields = cast("dict[str, Any]", form)
    if "object_type" not in fields:
        return {name: _convert(item, literals) for name, item in fields.items()}
    text = literals.get(str(fields.get("table_id"))) if fields["object_type"] == "object" else None
    if text is None:
        raise _NotJsonError
    if text.startswith(PLAIN_PREFIX):
        return json.loads(text, parse_constant=_refuse_constant)["value"]
    return _convert_rows(text)


def _convert_rows(text: str) -> Any:
    # slow imports, only needed for values of other types
    from pydantic_core import to_jsonable_python

    from aaiclick.data.io.from_arrow import normalise, to_python
    from aaiclick.data.io.literal_result_codec import decode_rows

    rows = decode_rows(text)
    return to_jsonable_python(to_python(normalise(rows.table, rows.columns), rows.columns, rows.shape))


def _refuse_constant(name: str) -> NoReturn:
    raise _NotJsonError(name)
