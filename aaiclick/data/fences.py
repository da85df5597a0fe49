"""Fences: where the parts of a filtered view begin.

The n-th matching row of a condition cannot be found without looking at all rows before it, so reading a filtered
Object in
chunks would cost quadratic time. One pass notes the key of every 65,536th matching row; after that each chunk starts
at the
fence before it. Rows are only ever appended, so fences stay true; new ones are found when they are needed.
"""

# sqlglot's trees are loosely typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false, reportPrivateImportUsage=false, reportArgumentType=false

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from aaiclick.data import sql
from aaiclick.data.compiler import Compiler
from aaiclick.data.frame import KEY
from aaiclick.data.nodes import Ref
from aaiclick.data.relations import Scan
from aaiclick.data.types import UINT64

if TYPE_CHECKING:
    from aaiclick.data.context import DataContext

STEP = 65_536


async def fenced(context: DataContext, scan: Scan) -> Scan:
    """The same rows, read from the last fence before them."""
    if scan.where is None or scan.offset < STEP or scan.start_key:
        return scan
    name = (scan.table.name, repr(scan.where))
    if len(context.fences.get(name, [])) <= scan.offset // STEP:
        context.fences[name] = await _find(context, scan)
    fences = context.fences[name]
    at = min(scan.offset // STEP, len(fences) - 1)
    return scan if at <= 0 else replace(scan, start_key=fences[at], skipped=at * STEP)


async def _find(context: DataContext, scan: Scan) -> list[int]:
    """The keys of matching rows 0, STEP, 2·STEP, …, in one ordered pass over the columns of the condition."""
    compiler = Compiler()
    frame = compiler.frame(Scan(scan.table, where=scan.where))
    frame.columns = {KEY: Ref(KEY, UINT64, _alias(frame.source))}
    matching = exp.Subquery(this=compiler.select(frame, ordered=True), alias=exp.TableAlias(this=sql.name("m")))
    numbered = exp.Select(expressions=[sql.column("m", KEY), sql.aliased(sql.call("rowNumberInAllBlocks"), "n")])
    numbered.set("from_", exp.From(this=matching))
    outer = exp.Select(expressions=[sql.column("f", KEY)])
    outer.set("from_", exp.From(this=exp.Subquery(this=numbered, alias=exp.TableAlias(this=sql.name("f")))))
    every = sql.binary("=", sql.call("modulo", sql.column("f", "n"), sql.number(STEP)), sql.number(0))
    outer.set("where", exp.Where(this=every))
    outer.set("order", exp.Order(expressions=[sql.column("f", KEY)]))
    settings = {"query_plan_remove_redundant_sorting": 0, "query_plan_filter_push_down": 0}
    rows = await context.client.read_text(sql.to_text(outer), compiler.parameters, settings, context.query_id())
    return rows.column(0).to_pylist()


def _alias(source: sql.Expression) -> str:
    return source.args["alias"].name
