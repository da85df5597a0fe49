"""Errors of the catalogue, as branches of the one error tree.

AaiclickError
└── CatalogError
    ├── DagError             a DAG file has errors: all of them, each with its position
    ├── DeployError          a valid DAG cannot be deployed in the current state
    ├── OperatorError        an operator is unknown, or its plug-in is broken
    ├── DatasetError         rows cannot be written to a dataset, or it has no rows yet
    ├── AnalysisLimitError   a text takes too much time or memory to analyse
    └── QueryRefusedError    a query is not one plain SELECT over readable datasets
        └── LineageError     the lineage of a column cannot be determined
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aaiclick.errors import EXIT_FAILED, EXIT_USAGE, AaiclickError


class CatalogError(AaiclickError):
    """Base of all errors of the catalogue."""

    exit_code = EXIT_USAGE


@dataclass(frozen=True, slots=True, order=True)
class FilePosition:
    """Line and column in a file; both start at 1, columns in characters."""

    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True, order=True)
class DagProblem:
    """One error in a DAG file: position, field, message and remedy."""

    position: FilePosition
    field: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return (
            f"{self.position.line}:{self.position.column}: {field}{self.what}{' ' + self.remedy if self.remedy else ''}"
        )


class DagError(CatalogError):
    """A DAG file has errors: all of them, each with its position."""

    def __init__(self, file: str, problems: Sequence[DagProblem]) -> None:
        self.file = file
        self.problems = tuple(sorted(set(problems)))
        count = len(self.problems)
        lines = [f"{file}:{problem}" for problem in self.problems]
        heading = f"{file} has {'one error' if count == 1 else f'{count} errors'}; nothing was changed."
        super().__init__("\n".join([heading, *lines]))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.file, self.problems)


class DeployError(CatalogError):
    """A valid DAG cannot be deployed in the current state."""

    exit_code = EXIT_FAILED


class OperatorError(CatalogError):
    """An operator is unknown, or its plug-in is broken."""


class DatasetError(CatalogError):
    """Rows cannot be written to a dataset, or it has no rows yet."""


class AnalysisLimitError(CatalogError):
    """A text takes too much time or memory to analyse."""


class QueryRefusedError(CatalogError):
    """A query is not one plain SELECT over readable datasets."""

    permanent = True
    """Its task is not retried."""


class LineageError(QueryRefusedError):
    """The lineage of a column cannot be determined."""
