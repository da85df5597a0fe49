"""Names of columns inside a SELECT: its relations, and how ClickHouse resolves and numbers their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from aaiclick.catalog.errors import LineageError
from aaiclick.data.errors import suggest_name


@dataclass(frozen=True, slots=True, order=True)
class ColumnRef:
    """A column of a dataset."""

    dataset: str
    column: str

    def __str__(self) -> str:
        return f"{self.dataset}.{self.column}"


Refs = frozenset[ColumnRef]
NO_REFS: Refs = frozenset()


@dataclass(frozen=True)
class TracedRelation:
    """A relation to select from. `unknown` is the name of a dataset without known columns."""

    columns: dict[str, Refs]
    rows: Refs = NO_REFS
    unknown: str | None = None
    unnamed: tuple[str, ...] = ()

    def find(self, name: str) -> Refs | None:
        refs = self.columns.get(name)
        if refs is None and self.unknown is not None:
            return frozenset({ColumnRef(self.unknown, name)})
        return refs


@dataclass
class SelectScope:
    """The names that are visible inside one SELECT."""

    defined: Mapping[str, TracedRelation]
    outer: SelectScope | None
    tables: list[tuple[str, TracedRelation]] = field(default_factory=list[tuple[str, TracedRelation]])
    values: dict[str, Refs] = field(default_factory=dict[str, Refs])
    merged: dict[str, Refs] = field(default_factory=dict[str, Refs])
    aliases: dict[str, exp.Expr] = field(default_factory=dict[str, exp.Expr])
    resolving: set[str] = field(default_factory=set[str])
    windows: dict[str, exp.Expr] = field(default_factory=dict[str, exp.Expr])
    parameters: list[str] = field(default_factory=list[str])
    alias_refs: dict[str, Refs] = field(default_factory=dict[str, Refs])
    holders: dict[str, list[str]] | None = None


def find_column(tables: list[tuple[str, TracedRelation]], name: str) -> Refs | None:
    """Return the lineage of a column in the leftmost table that has it; tables with unknown columns come last."""
    for unknown in (False, True):
        for _, relation in tables:
            if (relation.unknown is not None) is unknown:
                refs = relation.find(name)
                if refs is not None:
                    return refs
    return None


def output_name(alias: str, name: str, scope: SelectScope) -> str:
    """Return the output name of a table's column, qualified by the table as ClickHouse does if it is ambiguous.

    Of two tables, the left one's column keeps its plain name; of three or more, none does.
    """
    if scope.holders is None:
        scope.holders = {}
        for table_alias, relation in scope.tables:
            for column in relation.columns:
                scope.holders.setdefault(column, []).append(table_alias)
    holders = scope.holders.get(name, [])
    if alias not in holders or len(holders) < 2 or (len(scope.tables) == 2 and alias == holders[0]):
        return name
    return f"{alias}.{name}"


def unique_name(name: str, taken: Mapping[str, Refs], numbers: dict[str, int]) -> str:
    """Return a unique output name. `numbers` has the last suffix of each name."""
    shown, number = name, numbers.get(name, 1)
    while shown in taken:
        number += 1
        shown = f"{name}_{number}"
    numbers[name] = number
    return shown


def match_names(pattern: str, names: list[str]) -> list[bool]:
    """Match names with RE2 as ClickHouse does: linear time for every pattern."""
    import pyarrow as pa  # slow import, and few queries have a pattern
    from pyarrow import compute

    try:
        return compute.match_substring_regex(pa.array(names, pa.string()), pattern).to_pylist()
    except pa.ArrowInvalid:
        raise LineageError(f"The pattern {pattern!r:.60} cannot be read.", remedy="Name the columns.") from None


def list_tables(scope: SelectScope) -> str:
    names = ", ".join(repr(alias) for alias, _ in scope.tables if alias)
    return f"There is: {names}." if names else ""


def nearest_column(name: str, scope: SelectScope) -> str:
    names = (
        {column for _, relation in scope.tables for column in relation.columns} | set(scope.aliases) | set(scope.values)
    )
    return suggest_name(name, names)
