"""Rewrite a query over dataset names to the query over tables that ClickHouse runs.

The caller decides which table a name stands for, after the access check. A name that is not in the mapping is unknown:
the error is the same for a dataset that does not exist and for a hidden one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from aaiclick.catalog.queries.column_lineage import Lineage, trace_tree
from aaiclick.catalog.queries.select_parser import (
    check_allowlist,
    iter_tables,
    limit_recursion,
    parse_select,
    table_name,
)
from aaiclick.data.compile import sql
from aaiclick.data.types import quote_text

# Prefix of names that a query defines itself (WITH), so that they never refer to a table.
CTE_PREFIX = "with "


@dataclass(frozen=True, slots=True)
class PhysicalTable:
    """Table and columns of a dataset version; `final` if only the newest row of a key counts.

    `hidden`: the table has further columns that readers must not see. `only`: restricts it to one partition (column and
    value as text).
    """

    table: str
    columns: tuple[str, ...]
    database: str | None = None
    final: bool = False
    hidden: bool = False
    only: tuple[str, str] | None = None
    source: str = field(default="", repr=False)
    """The SELECT that replaces `table`; inserted last, since it contains text that the allowlist refuses."""

    def to_tree(self, alias: str) -> exp.Expr:
        if self.hidden or self.only is not None:
            return exp.Subquery(this=self._build_subquery(), alias=exp.TableAlias(this=sql.identifier(alias)))
        return self._table_tree(alias)

    def select(self) -> str:
        """Return a SELECT of the columns, as text."""
        return self.inline_source(sql.to_text(self._build_subquery()))

    def inline_source(self, text: str) -> str:
        """Replace the table name in a query by its source."""
        return text.replace(sql.to_text(sql.table(self.table)), f"({self.source})") if self.source else text

    def _table_tree(self, alias: str | None) -> exp.Expr:
        table = sql.table(self.table, alias)
        if self.database is not None:
            table.set("db", sql.identifier(self.database))
        return exp.Final(this=table) if self.final else table

    def _build_subquery(self) -> exp.Select:
        columns = [exp.Column(this=sql.identifier(name)) for name in self.columns]
        select = exp.Select(expressions=columns, from_=exp.From(this=self._table_tree(None)))
        if self.only is not None:
            column, value = self.only
            text = sql.call("toString", exp.Column(this=sql.identifier(column)))
            key = sql.call("ifNull", text, _text_literal("\\N"))
            select.set("where", exp.Where(this=exp.EQ(this=key, expression=_text_literal(value))))
        return select


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Resource limits of one query."""

    seconds: float = 30
    result_rows: int = 100_000
    result_bytes: int = 32 << 20
    result_values: int = 2_000_000
    """Number of values, including those in arrays; ClickHouse has no such limit."""
    read_rows: int = 10_000_000_000
    memory_bytes: int = 4 << 30
    threads: int | None = None

    def settings(self) -> dict[str, str | int | float]:
        """Return ClickHouse settings: a query beyond a limit fails, its result is never truncated."""
        settings: dict[str, str | int | float] = {
            "readonly": 2,
            "max_execution_time": self.seconds,
            "timeout_overflow_mode": "throw",
            "max_result_rows": self.result_rows,
            "max_result_bytes": self.result_bytes,
            "result_overflow_mode": "throw",
            "max_rows_to_read": self.read_rows,
            "read_overflow_mode": "throw",
            "max_memory_usage": self.memory_bytes,
            "allow_introspection_functions": 0,
            "allow_ddl": 0,
        }
        return settings if self.threads is None else settings | {"max_threads": self.threads}


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """The query text, its settings, and the datasets it reads."""

    text: str
    settings: dict[str, str | int | float]
    lineage: Lineage


def prepare_query(text: str, tables: Mapping[str, PhysicalTable], limits: QueryLimits | None = None) -> PreparedQuery:
    """Return the query to run; raises QueryRefusedError if it is not allowed or names an unknown table."""
    with limit_recursion():
        tree = parse_select(text)
        # Every name must be a known column: ClickHouse treats an unknown one as a function.
        lineage = trace_tree(tree, {name: table.columns for name, table in tables.items()})
        text_ = _rewrite_tables(tree, tables)
        check_allowlist(text_)
        for table in tables.values():
            text_ = table.inline_source(text_)
    return PreparedQuery(text_, (limits or QueryLimits()).settings(), lineage)


def _rewrite_tables(tree: exp.Query, tables: Mapping[str, PhysicalTable]) -> str:
    tables_ = list(iter_tables(tree))
    _drop_qualifiers(tree, {table_name(table) for table, own in tables_ if not own})
    for table, own in tables_:
        alias = table.alias or table.name
        physical = sql.table(CTE_PREFIX + table.name, alias) if own else tables[table_name(table)].to_tree(alias)
        target = table
        if isinstance(table.parent, exp.Final):
            target = table.parent
            if isinstance(physical, exp.Table):
                physical = exp.Final(this=physical)
        _keep_joins(table, physical)
        target.replace(physical)
    for part in tree.find_all(exp.CTE):
        if not part.args.get("scalar"):
            part.args["alias"].set("this", sql.identifier(CTE_PREFIX + part.alias))
    return sql.to_text(tree)


def _text_literal(text: str) -> exp.Expr:
    """Return a text literal, escaped for ClickHouse."""
    return exp.Var(this=quote_text(text))


def _drop_qualifiers(tree: exp.Expr, used: set[str]) -> None:
    """`dag.name.column` is `name.column` once the table has an alias."""
    for column in tree.find_all(exp.Column):
        if column.args.get("db") is not None and f"{column.text('db')}.{column.text('table')}" in used:
            column.set("db", None)


def _keep_joins(table: exp.Table, physical: exp.Expr) -> None:
    joins = table.args.get("joins")
    if joins:
        inner = physical.this if isinstance(physical, exp.Final) else physical
        inner.set("joins", joins)
