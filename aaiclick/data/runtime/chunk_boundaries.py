"""Index of chunk starts in a filtered view.

The n-th matching row cannot be found without scanning all rows before it, so reading a filtered Object in chunks would
take quadratic time. One pass stores the key of every 65,536th matching row, and each chunk is read from the nearest
one. Rows are only appended, so the index stays valid; it is extended when needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from aaiclick.data.compile import sql
from aaiclick.data.compile.relation_compiler import Compiler
from aaiclick.data.compile.relation_nodes import Scan
from aaiclick.data.compile.select_builder import KEY
from aaiclick.data.expressions.nodes import Ref
from aaiclick.data.types import UINT64

if TYPE_CHECKING:
    from aaiclick.data.context import DataContext

STEP = 65_536


async def with_start_key(context: DataContext, scan: Scan) -> Scan:
    """Return the same scan, starting at the nearest indexed key."""
    if scan.where is None or scan.offset < STEP or scan.start_key:
        return scan
    name = (scan.table.name, repr(scan.where))
    if len(context.chunk_index.get(name, [])) <= scan.offset // STEP:
        context.chunk_index[name] = await _find_chunk_keys(context, scan)
    keys = context.chunk_index[name]
    index = min(scan.offset // STEP, len(keys) - 1)
    return scan if index <= 0 else replace(scan, start_key=keys[index], skipped=index * STEP)


async def _find_chunk_keys(context: DataContext, scan: Scan) -> list[int]:
    """Return the keys of matching rows 0, STEP, 2·STEP, …, in one ordered pass over the condition's columns."""
    compiler = Compiler()
    frame = compiler.compile_relation(Scan(scan.table, where=scan.where))
    frame.columns = {KEY: Ref(KEY, UINT64, _alias(frame.source))}
    matching = exp.Subquery(
        this=compiler.build_select(frame, ordered=True), alias=exp.TableAlias(this=sql.identifier("m"))
    )
    numbered = exp.Select(expressions=[sql.column("m", KEY), sql.with_alias(sql.call("rowNumberInAllBlocks"), "n")])
    numbered.set("from_", exp.From(this=matching))
    outer = exp.Select(expressions=[sql.column("f", KEY)])
    outer.set("from_", exp.From(this=exp.Subquery(this=numbered, alias=exp.TableAlias(this=sql.identifier("f")))))
    condition = sql.binary("=", sql.call("modulo", sql.column("f", "n"), sql.number(STEP)), sql.number(0))
    outer.set("where", exp.Where(this=condition))
    outer.set("order", exp.Order(expressions=[sql.column("f", KEY)]))
    settings = {"query_plan_remove_redundant_sorting": 0, "query_plan_filter_push_down": 0}
    rows = await context.client.read_text(sql.to_text(outer), compiler.parameters, settings, context.query_id())
    return rows.column(0).to_pylist()


def _alias(source: sql.Expression) -> str:
    return source.args["alias"].name
