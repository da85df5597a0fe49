"""What can go wrong in the catalogue, as branches of the one error tree.

AaiclickError
└── CatalogError
    ├── DagError             a DAG file has errors: all of them, each with its place
    ├── DeployError          a DAG is right in itself, but cannot be deployed as things are
    ├── OperatorError        there is no such operator, or a plug-in is broken
    ├── DatasetError         rows cannot become part of a dataset, or are not there yet
    └── QueryRefusedError    a query is not one plain SELECT over datasets that may be read
        └── LineageError     where a column comes from cannot be said
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aaiclick.errors import EXIT_FAILED, EXIT_USAGE, AaiclickError


class CatalogError(AaiclickError):
    """Something about the catalogue went wrong."""

    exit_code = EXIT_USAGE


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something stands in a file; both counted from 1, columns in characters."""

    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong: where, which field, what, and what to do."""

    place: Place
    field: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return f"{self.place.line}:{self.place.column}: {field}{self.what}{' ' + self.remedy if self.remedy else ''}"


class DagError(CatalogError):
    """A DAG file has errors: all of them, each with its place."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = tuple(sorted(set(problems)))
        count = len(self.problems)
        lines = [f"{file}:{problem}" for problem in self.problems]
        heading = f"{file} has {'one error' if count == 1 else f'{count} errors'}; nothing was changed."
        super().__init__("\n".join([heading, *lines]))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.file, self.problems)


class DeployError(CatalogError):
    """A DAG is right in itself, but cannot be deployed as things are."""

    exit_code = EXIT_FAILED


class OperatorError(CatalogError):
    """There is no such operator, or a plug-in is broken."""


class DatasetError(CatalogError):
    """Rows cannot become part of a dataset, or are not there yet."""


class QueryRefusedError(CatalogError):
    """A query is not one plain SELECT over datasets that may be read."""

    permanent = True
    """A task that runs it is not tried again."""


class LineageError(QueryRefusedError):
    """Where a column comes from cannot be said."""
