"""A query over datasets by name, as the query that ClickHouse runs over tables.

Which table stands for which name is the caller's decision, after it has looked at what the reader may see. A name
that is not in the mapping is not there: the answer is the same for a dataset that does not exist and for one that is
hidden.
"""

# sqlglot's trees are loosely typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportPrivateImportUsage=false, reportArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from aaiclick.catalog.queries.lineage import Lineage, trace_tree
from aaiclick.catalog.queries.parse import check_words, parse_select, references, shallow, table_name
from aaiclick.data import sql
from aaiclick.data.types import quote_text

# Names that a query defines itself get this prefix: ClickHouse must never take one for a table.
OWN = "with "


@dataclass(frozen=True, slots=True)
class PhysicalTable:
    """Where a version of a dataset is, and its columns; `final` for tables whose newest row of a key counts.

    `hidden`: the table has more columns than these, which nobody may see. `only` the rows of one partition (column and
    value as text) are there.
    """

    table: str
    columns: tuple[str, ...]
    database: str | None = None
    final: bool = False
    hidden: bool = False
    only: tuple[str, str] | None = None
    source: str = field(default="", repr=False)
    """The SELECT that `table` stands for, if it is none; written last, since no query may say what is in it."""

    def tree(self, alias: str) -> exp.Expr:
        if self.hidden or self.only is not None:
            return exp.Subquery(this=self._subquery(), alias=exp.TableAlias(this=sql.name(alias)))
        return self._table(alias)

    def select(self) -> str:
        """A SELECT of the columns, as text."""
        return self.filled_in(sql.to_text(self._subquery()))

    def filled_in(self, text: str) -> str:
        """A query with the source in the place of the table."""
        return text.replace(sql.to_text(sql.table(self.table)), f"({self.source})") if self.source else text

    def _table(self, alias: str | None) -> exp.Expr:
        table = sql.table(self.table, alias)
        if self.database is not None:
            table.set("db", sql.name(self.database))
        return exp.Final(this=table) if self.final else table

    def _subquery(self) -> exp.Select:
        columns = [exp.Column(this=sql.name(each)) for each in self.columns]
        select = exp.Select(expressions=columns, from_=exp.From(this=self._table(None)))
        if self.only is not None:
            column, value = self.only
            text = sql.call("toString", exp.Column(this=sql.name(column)))
            key = sql.call("ifNull", text, _literal("\\N"))
            select.set("where", exp.Where(this=exp.EQ(this=key, expression=_literal(value))))
        return select


@dataclass(frozen=True, slots=True)
class Limits:
    """What one query may use."""

    seconds: float = 30
    result_rows: int = 100_000
    result_bytes: int = 32 << 20
    result_values: int = 2_000_000
    """Values with those within arrays; ClickHouse has no such limit."""
    read_rows: int = 10_000_000_000
    memory_bytes: int = 4 << 30
    threads: int | None = None

    def settings(self) -> dict[str, str | int | float]:
        """As settings of ClickHouse: it stops at the limit and says so, it never cuts a result short."""
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
    """What runs, with which settings, and which datasets it reads."""

    text: str
    settings: dict[str, str | int | float]
    lineage: Lineage


def prepare_query(text: str, tables: Mapping[str, PhysicalTable], limits: Limits | None = None) -> PreparedQuery:
    """The query to run; raises QueryRefusedError for one that is not allowed or names what is not in `tables`."""
    with shallow():
        tree = parse_select(text)
        # Every name must be a known column: ClickHouse takes one that is not for a function.
        lineage = trace_tree(tree, {name: each.columns for name, each in tables.items()})
        written = _written(tree, tables)
        check_words(written)
        for each in tables.values():
            written = each.filled_in(written)
    return PreparedQuery(written, (limits or Limits()).settings(), lineage)


def _written(tree: exp.Query, tables: Mapping[str, PhysicalTable]) -> str:
    found = list(references(tree))
    _drop_qualifiers(tree, {table_name(table) for table, own in found if not own})
    for table, own in found:
        alias = table.alias or table.name
        physical = sql.table(OWN + table.name, alias) if own else tables[table_name(table)].tree(alias)
        target = table
        if isinstance(table.parent, exp.Final):
            target = table.parent
            if isinstance(physical, exp.Table):
                physical = exp.Final(this=physical)
        _keep_joins(table, physical)
        target.replace(physical)
    for part in tree.find_all(exp.CTE):
        if not part.args.get("scalar"):
            part.args["alias"].set("this", sql.name(OWN + part.alias))
    return sql.to_text(tree)


def _literal(text: str) -> exp.Expr:
    """A text as ClickHouse reads it, whatever is in it."""
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
