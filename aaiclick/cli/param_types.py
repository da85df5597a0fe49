"""Parameter types of options and arguments, validated before connecting to a database or server."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click
from click.types import IntParamType

from aaiclick.store.engine.queries import LAST_ID

MAX_NUMBER = 1e9
FULL_ID = 10**17
"""Ids are larger."""


class IdType(IntParamType):
    """Id: a positive bigint. Of an id with a listing (`id_prefixes.LISTINGS`), the first digits are enough."""

    def __init__(self, *listing_names: str, first: int = 1) -> None:
        self.listing_names = listing_names
        self._first = first

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if not str(value).lstrip("-").isdecimal():
            listing = {"tasks": "tasks ls JOB"}.get(name := next(reversed(self.listing_names), ""), f"{name} ls")
            where = f" 'aaiclick {listing}' lists them." if name else ""
            self.fail(f"{value!r} is not a valid id: ids are numbers.{where}", param, ctx)
        number = int(super().convert(value, param, ctx))
        if not self._first <= number <= LAST_ID:
            self.fail(f"{value} is not a valid id: ids are numbers from 1 to {LAST_ID}.", param, ctx)
        return number if number >= FULL_ID else self._find(number, ctx)

    def _find(self, prefix: int, ctx: click.Context | None) -> int:
        if not self.listing_names or (ctx is not None and ctx.resilient_parsing):
            return prefix
        # slow imports, only needed for a shortened id
        from aaiclick.cli.id_prefixes import find_id
        from aaiclick.cli.local_and_remote_operations import open_operations

        with open_operations(None if ctx is None else ctx.params.get("org")) as operations:
            return find_id(operations, self.listing_names, prefix)


def split_names(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG001
    """Callback of a repeated option: its values may also be joined by commas."""
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


class TimeType(click.ParamType[str]):
    """Time with a time zone, in ISO format."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time. Write it as 2026-01-31T08:00:00Z.", param, ctx)
        if time.tzinfo is None:
            self.fail(f"{value!r} has no time zone. Write it as 2026-01-31T08:00:00Z.", param, ctx)
        return str(value)


class Number(click.FloatRange):
    """Finite number up to MAX_NUMBER; rejects 'nan' and 'inf'."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not -MAX_NUMBER <= number <= MAX_NUMBER:
            self.fail(f"{value} is not a number up to {MAX_NUMBER:,.0f}.", param, ctx)
        return number


class BoundedText(click.types.StringParamType):
    """Text of bounded length, as the API accepts it."""

    def __init__(self, max_length: int = 200, *, allow_empty: bool = False) -> None:
        self._max_length = max_length
        self._min_length = 0 if allow_empty else 1

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not self._min_length <= len(value) <= self._max_length:
            self.fail(
                "The value is empty." if not value else f"The value has more than {self._max_length} characters.",
                param,
                ctx,
            )
        return value


class ArgumentType(click.ParamType[tuple[str, object]]):
    """An argument of a job, NAME=VALUE; VALUE is JSON or plain text."""

    name = "argument"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, object]:
        argument_name, equals, text = str(value).partition("=")
        if not equals or not argument_name.isidentifier():
            self.fail(f"{value!r:.80}: write NAME=VALUE.", param, ctx)
        try:
            return argument_name, json.loads(text)
        except (ValueError, RecursionError):
            return argument_name, text


JOB_ID = IdType("jobs")
TASK_ID = IdType("tasks")
TASK_OR_JOB_ID = IdType("tasks", "jobs")
WORKER_ID = IdType("workers")
INCIDENT_ID = IdType("incidents")
APPROVAL_ID = IdType("approvals")
EVENT_ID = IdType("events")
ARGUMENT = ArgumentType()
CURSOR_ID = IdType(first=0)
"""Id after which a listing continues; 0 is the beginning."""

POSITION = click.IntRange(-LAST_ID - 1, LAST_ID)
"""Position in the range of a dataset version: a signed 64-bit integer."""

NAME = BoundedText()
