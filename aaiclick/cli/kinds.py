"""What options and arguments may be: ids, numbers and texts, refused here before a database or a server is asked."""

from __future__ import annotations

from typing import Any

import click
from click.types import IntParamType

from aaiclick.store.reads import LAST_ID

MOST = 1e9


class IdType(IntParamType):
    """A number that PostgreSQL can keep as an id: those of jobs, tasks and workers."""

    def __init__(self, first: int = 1) -> None:
        self._first = first

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if not str(value).lstrip("-").isdecimal():
            self.fail(f"{value!r} is not a valid integer.", param, ctx)
        number = int(super().convert(value, param, ctx))
        if not self._first <= number <= LAST_ID:
            self.fail(f"{value} cannot be an id: ids are numbers from 1 to {LAST_ID}.", param, ctx)
        return number


class Number(click.FloatRange):
    """A number that can be counted with: neither 'nan' nor 'inf', nor beyond all measure."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not -MOST <= number <= MOST:
            self.fail(f"{value} is not a number up to {MOST:,.0f}.", param, ctx)
        return number


class Words(click.types.StringParamType):
    """A text as the API takes it: something, and not too much of it."""

    def __init__(self, most: int = 200, *, may_be_empty: bool = False) -> None:
        self._most = most
        self._least = 0 if may_be_empty else 1

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not self._least <= len(value) <= self._most:
            self.fail("It is empty." if not value else f"It has more than {self._most} characters.", param, ctx)
        return value


ID = IdType()
PLACE = IdType(0)
"""Where a listing goes on: behind an id, or from the beginning."""

POSITION = click.IntRange(-LAST_ID - 1, LAST_ID)
"""A position in a range of a dataset version: 64 bits, signed."""

NAME = Words()
