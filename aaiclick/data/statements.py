"""Whole statements: a SELECT to read, an INSERT … SELECT to store."""

# sqlglot's trees are loosely typed.
# pyright: reportUnknownMemberType=false, reportArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from aaiclick.data import sql
from aaiclick.data.compiler import Compiler
from aaiclick.data.frame import KEY
from aaiclick.data.relations import Relation
from aaiclick.data.sql import Expression
from aaiclick.data.types import STRING, DataType, datetime_type, zone_of


@dataclass(frozen=True)
class Compiled:
    """A query ready to send: text, bound parameters, settings it needs, and the columns it gives."""

    text: str
    parameters: Mapping[str, Any]
    settings: Mapping[str, Any]
    columns: tuple[tuple[str, DataType], ...]


def presentable(tree: Expression, kind: DataType) -> Expression:
    """Types that Arrow has no word for travel as ones it has; `results` turns them back."""
    if kind.name in ("IPv4", "IPv6", "Enum8", "Enum16", "JSON") or (kind.is_integer and kind.bits > 64):
        return sql.cast(tree, STRING.as_nullable(kind.nullable))
    if kind.name == "DateTime":
        return sql.cast(tree, datetime_type(0, zone_of(kind)).as_nullable(kind.nullable))
    return tree


def compile_query(relation: Relation, *, ordered: bool = True, arrow: bool = False, pretty: bool = False) -> Compiled:
    """The one SELECT that computes a relation; `arrow` shapes it for reading into Python."""
    compiler = Compiler()
    frame = compiler.frame(relation)
    tree = compiler.select(frame, ordered, presentable if arrow else None)
    columns = tuple((name, node.type) for name, node in frame.columns.items())
    return Compiled(sql.to_text(tree, pretty), compiler.parameters, compiler.settings, columns)


def compile_insert(relation: Relation, table: str, start: int = 0, extra: tuple[str, int] | None = None) -> Compiled:
    """INSERT … SELECT that numbers the rows from `start` in their order; `extra` is a column with the same number for
    all of them.

    A key that is already dense is kept; otherwise rows are numbered as they leave the sort, in one stream.
    """
    compiler = Compiler()
    frame = compiler.frame(relation)
    columns = tuple((name, node.type) for name, node in frame.columns.items())
    mark = () if extra is None else (sql.aliased(sql.number(extra[1]), extra[0]),)
    if frame.key is not None and frame.is_plain:
        key = sql.aliased(_from(compiler.value(frame.known_index()), start), KEY)
        tree = compiler.select(frame, ordered=False, extra=(key, *mark))
    else:
        inner = compiler.select(frame, ordered=True)
        alias = compiler.alias()
        source = exp.Subquery(this=inner, alias=exp.TableAlias(this=sql.name(alias)))
        outputs = [sql.column(alias, name) for name, _ in columns]
        key = sql.aliased(_from(sql.call("rowNumberInAllBlocks"), start), KEY)
        tree = exp.Select(expressions=[key, *mark, *outputs])
        tree.set("from_", exp.From(this=source))
    names = [sql.name(name) for name in (KEY, *(extra or ())[:1], *(name for name, _ in columns))]
    target = exp.Schema(this=sql.table(table), expressions=names)
    settings = {**compiler.settings, "max_insert_threads": 1, "query_plan_remove_redundant_sorting": 0}
    return Compiled(sql.to_text(exp.Insert(this=target, expression=tree)), compiler.parameters, settings, columns)


def _from(index: Expression, start: int) -> Expression:
    return sql.binary("+", index, sql.number(start)) if start else index
