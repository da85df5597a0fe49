"""Compiled statements: SELECT to read a relation, INSERT … SELECT to store it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from aaiclick.data.compile import sql
from aaiclick.data.compile.pruning import prune_columns
from aaiclick.data.compile.relation_compiler import Compiler
from aaiclick.data.compile.relation_nodes import Relation
from aaiclick.data.compile.select_builder import KEY
from aaiclick.data.compile.sql import Expression
from aaiclick.data.types import STRING, DataType, datetime_type, decimal_type, iter_types, map_inner_types, zone_of

WIDE_INTEGERS = ("Int128", "UInt128")


@dataclass(frozen=True)
class CompiledQuery:
    """A compiled query: text, parameters, settings, and result columns."""

    text: str
    parameters: Mapping[str, Any]
    settings: Mapping[str, Any]
    columns: tuple[tuple[str, DataType], ...]


def is_arrow_type(dtype: DataType) -> bool:
    """Whether Arrow has the type, so that `cast_for_arrow` leaves its values alone."""
    return not (
        dtype.name in ("IPv4", "IPv6", "Enum8", "Enum16", "JSON", "DateTime") or (dtype.is_integer and dtype.bits > 64)
    )


def cast_for_arrow(tree: Expression, dtype: DataType) -> Expression:
    """Cast types that Arrow lacks to ones it has; `io.from_arrow` converts them back."""
    target = _arrow_result_type(dtype)
    if target == dtype:
        return tree
    if any(part.name in WIDE_INTEGERS for part in iter_types(dtype)):  # ClickHouse casts them to Decimal only as text
        tree = sql.cast(tree, _wide_integers_as_text(dtype))
    return sql.cast(tree, target)


def _wide_integers_as_text(dtype: DataType) -> DataType:
    if dtype.name in WIDE_INTEGERS:
        return STRING.as_nullable(dtype.nullable)
    return map_inner_types(dtype, _wide_integers_as_text)


def _arrow_result_type(dtype: DataType) -> DataType:
    if dtype.name in ("IPv4", "IPv6", "Enum8", "Enum16", "JSON", "Int256", "UInt256"):
        return STRING.as_nullable(dtype.nullable)
    if dtype.name in WIDE_INTEGERS:
        return decimal_type(39, 0).as_nullable(dtype.nullable)
    if dtype.name == "DateTime":
        return datetime_type(0, zone_of(dtype)).as_nullable(dtype.nullable)
    return map_inner_types(dtype, _arrow_result_type)


def compile_query(
    relation: Relation, *, ordered: bool = True, arrow: bool = False, pretty: bool = False
) -> CompiledQuery:
    """Compile a relation to a SELECT; `arrow` casts columns to types that Arrow supports."""
    compiler = Compiler()
    builder = compiler.compile_relation(prune_columns(relation))
    tree = compiler.build_select(builder, ordered, cast_for_arrow if arrow else None)
    columns = tuple((name, node.type) for name, node in builder.columns.items())
    return CompiledQuery(sql.to_text(tree, pretty), compiler.parameters, compiler.settings, columns)


def compile_insert(
    relation: Relation, table: str, start: int = 0, extra: tuple[str, int] | None = None
) -> CompiledQuery:
    """Compile INSERT … SELECT with rows numbered from `start` in order; `extra` is a column with a constant number.

    A key that is already dense is reused; otherwise rows are numbered after the sort, in a single stream.
    """
    compiler = Compiler()
    builder = compiler.compile_relation(prune_columns(relation))
    columns = tuple((name, node.type) for name, node in builder.columns.items())
    extra_outputs = () if extra is None else (sql.with_alias(sql.number(extra[1]), extra[0]),)
    if builder.key is not None and builder.is_plain:
        key = sql.with_alias(_offset_index(compiler.compile_value(builder.require_row_index()), start), KEY)
        tree = compiler.build_select(builder, ordered=False, extra=(key, *extra_outputs))
    else:
        inner = compiler.build_select(builder, ordered=True)
        alias = compiler.next_alias()
        source = exp.Subquery(this=inner, alias=exp.TableAlias(this=sql.identifier(alias)))
        outputs = [sql.column(alias, name) for name, _ in columns]
        key = sql.with_alias(_offset_index(sql.call("rowNumberInAllBlocks"), start), KEY)
        tree = exp.Select(expressions=[key, *extra_outputs, *outputs])
        tree.set("from_", exp.From(this=source))
    names = [sql.identifier(name) for name in (KEY, *(extra or ())[:1], *(name for name, _ in columns))]
    target = exp.Schema(this=sql.table(table), expressions=names)
    settings = {**compiler.settings, "max_insert_threads": 1, "query_plan_remove_redundant_sorting": 0}
    return CompiledQuery(sql.to_text(exp.Insert(this=target, expression=tree)), compiler.parameters, settings, columns)


def _offset_index(index: Expression, start: int) -> Expression:
    return sql.binary("+", index, sql.number(start)) if start else index
