"""What options and arguments may be: refused here, before a database or a server is asked."""

from __future__ import annotations

from typing import Any

import click

MOST = 1e9


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


NAME = Words()
