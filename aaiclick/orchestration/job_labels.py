"""What a job carries besides its tasks: tags, an owner, and the call that submitted it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic_core import PydanticSerializationError, to_jsonable_python

from aaiclick.errors import RequestError, SubmitError
from aaiclick.orchestration.handler_registry import entrypoint_of

if TYPE_CHECKING:
    import asyncpg

OWNER = "owner"
"""Tag with the owner of a job."""

MAX_TAGS = 20
MAX_VALUE_CHARACTERS = 200
MAX_TRIGGER_BYTES = 16_000
"""Longer calls are not stored, and cannot be run again with changes."""

_TAG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,49}")


def check_labels(where: str, tags: Mapping[str, str] | None, owner: str | None = None) -> dict[str, str]:
    """Tags of a job, with the owner as one of them; raises SubmitError for those that cannot be stored."""
    if not isinstance(tags, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]  (of untyped code)
        raise SubmitError(f"{where} has the tags {tags!r:.60}.", remedy='Give names and values: {"team": "finance"}.')
    labels = dict(tags or {})
    if OWNER in labels:
        raise SubmitError(f"{where} has a tag named 'owner'.", remedy='Use owner="NAME".')
    if len(labels) > MAX_TAGS:
        raise SubmitError(f"{where} has {len(labels)} tags.", remedy=f"It may have {MAX_TAGS}.")
    for name, value in labels.items():
        if not _TAG_NAME.fullmatch(name):
            raise SubmitError(
                f"{where} has a tag named {name[:60]!a}.",
                remedy="A name has 1 to 50 letters, digits, '_', '-' and '.'.",
            )
        _check_text(f"{where} has the tag {name!r} with a value", value)
    if owner is not None:
        _check_text(f"{where} has an owner", owner)
        labels[OWNER] = owner
    return labels


def parse_tags(texts: Sequence[str]) -> dict[str, str]:
    """Tags of texts such as "team=finance"; raises RequestError."""
    tags: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value or not _TAG_NAME.fullmatch(name):
            raise RequestError(f"{text[:60]!a} is no tag.", remedy="Write NAME=VALUE, such as team=finance.")
        tags[name] = value
    return tags


def split_labels(labels: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """Tags without the owner, and the owner."""
    return {name: value for name, value in labels.items() if name != OWNER}, labels.get(OWNER)


def dump_labels(labels: Mapping[str, str]) -> str | None:
    """The column `jobs.tags`."""
    return json.dumps(dict(labels)) if labels else None


def _check_text(what: str, value: object) -> None:
    if (
        not isinstance(value, str)
        or not value.strip()
        or not value.isprintable()
        or len(value) > MAX_VALUE_CHARACTERS
        or not _is_encodable(value)
    ):
        raise SubmitError(
            f"{what} {str(value)[:50]!a}.", remedy=f"It is text of 1 to {MAX_VALUE_CHARACTERS} printable characters."
        )


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def registered_labels(row: asyncpg.Record) -> str | None:
    """The column `jobs.tags` of jobs of a registered function."""
    owner = {} if row["owner"] is None else {OWNER: row["owner"]}
    return dump_labels(json.loads(row["tags"]) | owner)


def make_call_trigger(function: Callable[..., object], arguments: Mapping[str, object]) -> str | None:
    """The call of a `@job` for `jobs.trigger`; None if it cannot be repeated by name and JSON values."""
    try:
        return make_trigger(entrypoint_of(function), to_jsonable_python(dict(arguments)))
    except (SubmitError, PydanticSerializationError, ValueError, TypeError, RecursionError):
        return None


def make_trigger(entrypoint: str, arguments: Mapping[str, object]) -> str | None:
    """Entrypoint and JSON arguments as text; None if they are too long."""
    text = json.dumps({"kind": "call", "entrypoint": entrypoint, "arguments": dict(arguments)}, allow_nan=False)
    return text if len(text) <= MAX_TRIGGER_BYTES and "\\u0000" not in text else None
