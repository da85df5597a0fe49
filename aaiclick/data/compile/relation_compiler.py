"""Compiler: a relation becomes one ClickHouse SELECT.

Columns are always qualified with the alias of their FROM item, since ClickHouse resolves `x` in `SELECT x + 1 AS x …
WHERE x > 1` to the alias and not to the column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from sqlglot import exp

from aaiclick.data.compile import sql
from aaiclick.data.compile.expression_compiler import ValueCompiler, canonical_key, comparable_keys, nan_as_null
from aaiclick.data.compile.pruning import prune_columns
from aaiclick.data.compile.relation_nodes import (
    Aggregate,
    Columns,
    Concat,
    Distinct,
    Explode,
    Filter,
    Join,
    LimitBy,
    Project,
    Relation,
    Scan,
    Slice,
    Sort,
    Zip,
    iter_scans,
)
from aaiclick.data.compile.select_builder import (
    KEY,
    SelectBuilder,
    drop_repeated_keys,
    is_too_large,
    needs_index,
    nested_windows,
    resolve_positions,
)
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.nodes import (
    ExpressionNode,
    FunctionCall,
    Literal,
    Over,
    Ref,
    RowIndex,
    SortKey,
    has_window,
    rewrite_node,
    substitute_columns,
)
from aaiclick.data.types import STRING, UINT8, UINT64, DataType

if TYPE_CHECKING:
    from aaiclick.data.runtime.tables import Table

INDEX = "aai_n"
PREDICATE = "aai_p"
ELEMENT = "aai_j"
CONSTANT = "aai_c"
PRESENT = "aai_m"
"""Marks the rows of the left side of a full join."""

MISPAIRED = "aai_mispaired"
"""Message of `throwIf` if a row was combined with one of another position, which is a bug."""

LENGTH_MISMATCH = "aai_length"
"""Message of `throwIf` when Objects combined row by row differ in length."""

SWAPPED_JOIN_ALGORITHMS = "direct,parallel_hash,hash"
"""Algorithms of outer joins: with parallel_hash ClickHouse builds the hash table of the smaller side.

Other joins need 5 to 20 % less CPU time with `default` (bench.tpch, 22 queries in two orders of joins).
"""

JOIN_KEYWORDS = {
    "inner": "INNER", "left": "LEFT", "right": "RIGHT", "full": "FULL", "cross": "CROSS", "semi": "LEFT SEMI",
    "anti": "LEFT ANTI", "asof": "ASOF LEFT",
}  # fmt: skip


class Compiler(ValueCompiler):
    """Compiles one query; aliases and parameters are numbered across its subqueries."""

    # --- relations -----------------------------------------------------------------------------------------------

    def compile_relation(self, relation: Relation) -> SelectBuilder:
        handlers: dict[type, Callable[[Any], SelectBuilder]] = {
            Scan: self._compile_scan,
            Project: self._compile_project,
            Filter: self._compile_filter,
            Sort: self._compile_sort,
            Slice: self._compile_slice,
            LimitBy: self._compile_limit_by,
            Distinct: self._compile_distinct,
            Aggregate: self._compile_aggregate,
            Explode: self._compile_explode,
            Join: self._compile_join,
            Zip: self._compile_zip,
            Concat: self._compile_concat,
        }
        return handlers[type(relation)](relation)

    def _compile_scan(self, scan: Scan) -> SelectBuilder:
        alias = self.next_alias()
        key = Ref(KEY, UINT64, alias)
        columns: dict[str, ExpressionNode] = {name: Ref(name, dtype, alias) for name, dtype in scan.table.columns}
        builder = SelectBuilder(self._scan_source(scan.table, alias), columns, [SortKey(key)], key)
        if scan.where is None:
            if scan.offset or scan.limit is not None:
                builder.apply_slice(scan.offset, scan.limit)
            return builder
        if scan.start_key:
            builder.where.append(FunctionCall("ge", (key, Literal(scan.start_key, UINT64))))
        builder.where.append(substitute_columns(scan.where, columns))
        builder.key = None
        if scan.offset or scan.limit is not None:
            builder.apply_slice(scan.offset - scan.skipped, scan.limit)
        return builder

    def _scan_source(self, table: Table, alias: str) -> Expression:
        """FROM item of a table; the rows of a literal are parameters of the query."""
        if table.literal is None:
            return sql.table(table.name, alias)
        structure = self._bind_parameter(Literal(table.literal.structure, STRING))
        rows = self._bind_parameter(Literal(table.literal.encoded, STRING))
        return sql.literal_table(structure, rows, alias)

    def _compile_project(self, relation: Project) -> SelectBuilder:
        builder = self.compile_relation(relation.input)
        nodes = [node for _, node in relation.columns]
        builder = self._with_row_index(builder, nodes)
        builder, own_columns = self._hoist_windows(builder, relation.columns)
        if any(has_window(node) for _, node in own_columns) and (builder.is_sliced or builder.group is not None):
            builder = self.wrap_as_subquery(builder)
        columns = self._inline_columns(builder, own_columns)
        if any(nested_windows([node]) or is_too_large(node) for node in columns.values()):
            builder = self.wrap_as_subquery(builder)
            columns = self._inline_columns(builder, own_columns)
        builder.columns = columns
        return builder

    def _hoist_windows(self, builder: SelectBuilder, columns: Columns) -> tuple[SelectBuilder, Columns]:
        """Move windows inside windows or aggregates to a subquery."""
        while inner := nested_windows([node for _, node in columns]):
            if builder.is_sliced or builder.group is not None or builder.has_window:
                builder = self.wrap_as_subquery(builder)
            names: dict[ExpressionNode, str] = {
                window: f"aai_w{len(builder.columns) + i}" for i, window in enumerate(inner)
            }
            added = self._inline_columns(builder, tuple((name, window) for window, name in names.items()))
            builder.columns.update(added)
            builder = self.wrap_as_subquery(builder)

            def replace_hoisted(
                node: ExpressionNode, names: dict[ExpressionNode, str] = names
            ) -> ExpressionNode | None:
                return Ref(names[node], node.type) if node in names else None

            columns = tuple((name, rewrite_node(node, replace_hoisted)) for name, node in columns)
        return builder, columns

    def _inline_columns(self, builder: SelectBuilder, columns: Columns) -> dict[str, ExpressionNode]:
        index = builder.columns.get(INDEX)
        resolved = {name: _replace_row_index(node, index) for name, node in columns}
        return {
            name: substitute_columns(resolve_positions(node, builder), builder.columns)
            for name, node in resolved.items()
        }

    def _with_row_index(self, builder: SelectBuilder, nodes: list[ExpressionNode]) -> SelectBuilder:
        """Add a column of row positions if the nodes need one and the key does not provide it."""
        if not needs_index(nodes) or (builder.key is not None and builder.is_plain):
            return builder
        if builder.is_sliced or builder.group is not None or builder.has_window:
            builder = self.wrap_as_subquery(builder)
        number = Over(FunctionCall("row_number"), order=tuple(builder.order))
        builder.columns[INDEX] = FunctionCall("cast", (FunctionCall("sub", (number, Literal(1, UINT8))),), (UINT64,))
        return self.wrap_as_subquery(builder)

    def _compile_filter(self, relation: Filter) -> SelectBuilder:
        builder = self.compile_relation(relation.input)
        builder = self._with_row_index(builder, [relation.predicate])
        if not builder.is_plain:
            builder = self.wrap_as_subquery(builder)
        predicate = self._inline_columns(builder, ((PREDICATE, relation.predicate),))[PREDICATE]
        if has_window(predicate) or is_too_large(predicate):
            builder.columns[PREDICATE] = predicate
            builder = self.wrap_as_subquery(builder)
            predicate = builder.columns.pop(PREDICATE)
        builder.columns.pop(INDEX, None)
        builder.where.append(predicate)
        builder.key = None
        return builder

    def _compile_sort(self, relation: Sort) -> SelectBuilder:
        builder = self.compile_relation(relation.input)
        if builder.is_sliced:
            builder = self.wrap_as_subquery(builder)
        builder = self._with_row_index(builder, [key.node for key in relation.keys])
        names = tuple((str(i), key.node) for i, key in enumerate(relation.keys))
        nodes = self._inline_columns(builder, names)
        keys = [SortKey(nodes[str(i)], key.descending, key.nulls_first) for i, key in enumerate(relation.keys)]
        builder.columns.pop(INDEX, None)
        builder.order = drop_repeated_keys([*keys, *builder.order])
        builder.key = None
        return builder

    def _compile_slice(self, relation: Slice) -> SelectBuilder:
        builder = self.compile_relation(relation.input)
        if builder.limit_by is not None or (relation.from_end and builder.is_sliced):
            builder = self.wrap_as_subquery(builder)
        if not relation.from_end:
            builder.apply_slice(relation.offset, relation.limit)
            return builder
        builder.order = [key.reverse() for key in builder.order]
        builder.offset, builder.limit, builder.key = relation.offset, relation.limit, None
        return self._reverse_rows(builder)

    def _reverse_rows(self, builder: SelectBuilder) -> SelectBuilder:
        """Make the SELECT, which takes rows from the end, a subquery, and restore the order of its rows."""
        outer = self.wrap_as_subquery(builder)
        outer.order = [key.reverse() for key in outer.order]
        return outer

    def _compile_limit_by(self, relation: LimitBy) -> SelectBuilder:
        builder = self._with_row_index(self.compile_relation(relation.input), [node for _, node in relation.keys])
        if not builder.is_plain:
            builder = self.wrap_as_subquery(builder)
        nodes = self._inline_columns(builder, relation.keys)
        builder.columns.pop(INDEX, None)
        builder.limit_by = (relation.limit, [canonical_key(node) for node in nodes.values()])
        builder.key = None
        if not relation.from_end:
            return builder
        builder.order = [key.reverse() for key in builder.order]
        return self._reverse_rows(builder)

    def _compile_aggregate(self, relation: Aggregate) -> SelectBuilder:
        builder = self.compile_relation(relation.input)
        having = () if relation.having is None else ((PREDICATE, relation.having),)
        columns: Columns = (*relation.keys, *relation.values, *having)
        builder = self._with_row_index(builder, [node for _, node in columns])
        if not builder.is_plain:
            builder = self.wrap_as_subquery(builder)
        builder, columns = self._hoist_windows(builder, columns)
        nodes = self._inline_columns(builder, columns)
        if any(has_window(node) or is_too_large(node) for node in nodes.values()):
            builder = self.wrap_as_subquery(builder)
            nodes = self._inline_columns(builder, columns)
        if having:
            builder.having = nodes.pop(PREDICATE)
        nodes |= {name: canonical_key(nodes[name]) for name, _ in relation.keys}
        keys = [nodes[name] for name, _ in relation.keys]
        builder.columns = nodes
        builder.group = keys
        builder.order = [SortKey(node) for node in keys if not isinstance(node, Literal)]
        builder.key = None
        return builder

    def _compile_distinct(self, relation: Distinct) -> SelectBuilder:
        builder = self._with_row_index(self.compile_relation(relation.input), [RowIndex()])
        if not builder.is_plain:
            builder = self.wrap_as_subquery(builder)
        index = builder.columns.pop(INDEX, None) or builder.require_row_index()
        distinct_columns = set(relation.subset)
        nodes = {
            n: canonical_key(node) if n in distinct_columns else _first_of_group(node, index)
            for n, node in builder.columns.items()
        }
        builder.group = [nodes[name] for name in relation.subset]
        builder.columns = nodes
        builder.order = [SortKey(FunctionCall("min", (index,)))]
        builder.key = None
        return builder

    def _compile_explode(self, relation: Explode) -> SelectBuilder:
        builder = self.compile_relation(relation.input)
        if not builder.is_plain:
            builder = self.wrap_as_subquery(builder)
        first = builder.columns[relation.names[0]]
        builder.columns[ELEMENT] = FunctionCall("_positions", (first,), (relation.keep_empty,))
        builder.key = None
        builder = self.wrap_as_subquery(builder)
        position = builder.columns.pop(ELEMENT)
        for name in relation.names:
            builder.columns[name] = FunctionCall("_element", (builder.columns[name], position), (relation.keep_empty,))
        builder.order.append(SortKey(position))
        return builder

    def _compile_join(self, relation: Join) -> SelectBuilder:
        sides = [self.compile_relation(relation.left), self.compile_relation(relation.right)]
        pairs = relation.on
        if relation.how == "asof" and not pairs:
            pairs = ((CONSTANT, CONSTANT),)  # an ASOF join needs an equality condition
            for side in sides:
                side.columns[CONSTANT] = Literal(0, UINT8)
        if relation.how == "full" and _may_start_with_null(sides[0].order):
            sides[0].columns[PRESENT] = Literal(1, UINT8)
        # On a cluster a bare table at the right would be looked up on each node.
        is_bare = not any(scan.table.is_distributed for scan in iter_scans(relation))
        left, right = (side if is_bare and side.is_table else self.wrap_as_subquery(side) for side in sides)
        present = left.columns.pop(PRESENT, None)
        conditions: list[Expression] = []
        for a, b in pairs:
            keys = comparable_keys(left.columns[a], right.columns[b])
            trees = [self.compile_value(key) for key in keys]
            is_null_safe = relation.equal_nulls and all(key.type.nullable for key in keys)
            conditions.append(sql.call("isNotDistinctFrom", *trees) if is_null_safe else sql.binary("=", *trees))
        if relation.asof is not None:
            a, operator, b = relation.asof
            conditions.append(
                sql.binary(operator, *(self.compile_value(nan_as_null(n)) for n in (left.columns[a], right.columns[b])))
            )
        if relation.how in ("left", "right", "full"):
            self.settings["join_algorithm"] = SWAPPED_JOIN_ALGORITHMS
        elif self.settings.get("join_algorithm") != SWAPPED_JOIN_ALGORITHMS:
            self.settings["join_algorithm"] = "default"  # applies to the whole query: zipped relations too
        join = exp.Join(this=right.source, kind=JOIN_KEYWORDS[relation.how])
        condition = sql.conjunction(conditions)
        if condition is not None:
            join.set("on", condition)
        columns = {
            name: self._join_output(relation, side, source, left, right) for name, side, source in relation.outputs
        }
        order = [*right.order, *left.order] if relation.how == "right" else [*left.order, *right.order]
        if relation.how in ("semi", "anti", "asof"):
            order = left.order
        if present is not None:  # rows without a left row come last, whatever its sort keys
            order = [SortKey(FunctionCall("is_null", (_retype_column(present),))), *order]
        return SelectBuilder(left.source, columns, order, joins=[join])

    def _join_output(
        self, relation: Join, side: str, source: str, left: SelectBuilder, right: SelectBuilder
    ) -> ExpressionNode:
        if side == "l":
            return _retype_column(left.columns[source], relation.output_type(side, source))
        if side == "r":
            return _retype_column(right.columns[source], relation.output_type(side, source))
        other = right.columns[dict(relation.on)[source]]
        if relation.how == "right":
            return other
        if relation.how == "full":
            return FunctionCall("coalesce", (_retype_column(left.columns[source]), _retype_column(other)))
        return left.columns[source]

    def _compile_zip(self, relation: Zip) -> SelectBuilder:
        """Zip relations by a PASTE JOIN of their sorted rows; on a cluster, by a merge join on the dense key."""
        if any(scan.table.is_distributed for scan in iter_scans(relation)):
            return self._compile_merged_zip(relation)
        members = [self._compile_pasted_member(member) for member in relation.members]
        first, *rest = members
        joins: list[Expression] = [exp.Join(this=member.source, kind="PASTE") for member in rest]
        checks: list[Expression] = []
        columns: dict[str, ExpressionNode] = {}
        for i, member in enumerate(members):
            columns |= {f"{i}:{name}": node for name, node in member.columns.items()}
        for i, member in enumerate(rest, start=1):
            # PASTE JOIN ends with the shorter side, and pairs rows as they come.
            checks.append(self._length_check(relation.members[0], relation.members[i]))
            differ = sql.binary("!=", *(self.compile_value(side.require_row_index()) for side in (first, member)))
            checks.append(sql.binary("=", sql.call("throwIf", differ, sql.string(MISPAIRED)), sql.number(0)))
        # Without this setting ClickHouse removes the sorting of the subqueries, which then yield rows in any order.
        self.settings["query_plan_remove_redundant_sorting"] = 0
        return SelectBuilder(
            first.source, columns, [SortKey(first.key or Ref(KEY))], first.key, first.key_start, joins, checks=checks
        )

    def _compile_pasted_member(self, relation: Relation) -> SelectBuilder:
        """Return the rows as a sorted subquery with their dense key."""
        builder = self.compile_relation(relation)
        if builder.key is None or not builder.is_plain:
            return self._compile_zip_member(relation, ordered=True)
        return self.wrap_as_subquery(builder, ordered=True)

    def _compile_merged_zip(self, relation: Zip) -> SelectBuilder:
        members = [self._compile_zip_member(member) for member in relation.members]
        first, *rest = members
        joins: list[Expression] = []
        checks: list[Expression] = []
        columns: dict[str, ExpressionNode] = {}
        where: list[ExpressionNode] = []
        for i, member in enumerate(members):
            columns |= {f"{i}:{name}": node for name, node in member.columns.items() if name != INDEX}
            where += member.where
        for i, member in enumerate(rest, start=1):
            on = sql.binary("=", *(self.compile_value(cast("Ref", side.key)) for side in (first, member)))
            joins.append(exp.Join(this=member.source, kind="INNER", on=on))
            checks.append(self._length_check(relation.members[0], relation.members[i]))
        self.settings.setdefault("join_algorithm", "full_sorting_merge")
        # On a cluster equal keys of tables are on one node, but the keys of a subquery are computed.
        if any(isinstance(member.source, exp.Subquery) for member in members):
            self.settings["distributed_product_mode"] = "global"
        self.settings.setdefault("distributed_product_mode", "local")
        return SelectBuilder(
            first.source, columns, [SortKey(first.key or Ref(KEY))], first.key, 0, joins, where, checks
        )

    def _compile_zip_member(self, relation: Relation, ordered: bool = False) -> SelectBuilder:
        builder = self.compile_relation(relation)
        if builder.key is not None and builder.is_plain and builder.key_start == 0 and not builder.joins:
            return builder
        builder = self._with_row_index(builder, [RowIndex()])
        if INDEX not in builder.columns:
            builder.columns[INDEX] = builder.require_row_index()
        builder = self.wrap_as_subquery(builder, ordered)
        key = cast("Ref", builder.columns.pop(INDEX))
        builder.key, builder.key_start, builder.order = key, 0, [SortKey(key)]
        return builder

    def _length_check(self, left: Relation, right: Relation) -> Expression:
        # ClickHouse evaluates scalar subqueries before the query, even for empty tables, so the check always runs.
        other = exp.Paren(this=self.count_rows(right))
        differ = sql.binary("!=", sql.call("count"), other)
        check = sql.call("throwIf", differ, sql.string(LENGTH_MISMATCH))
        counted = self.count_rows(left)
        counted.set("expressions", [check])
        return sql.binary("=", exp.Paren(this=counted), sql.number(0))

    def count_rows(self, relation: Relation) -> exp.Select:
        builder = self.compile_relation(prune_columns(relation, frozenset()))
        if builder.is_sliced or builder.group is not None:
            builder = self.wrap_as_subquery(builder)
        builder.columns, builder.order, builder.group = {"n": FunctionCall("len")}, [], []
        return self.build_select(builder, ordered=False)

    def _compile_concat(self, relation: Concat) -> SelectBuilder:
        selects: list[exp.Select] = []
        for i, member in enumerate(relation.members):
            builder = self._with_row_index(self.compile_relation(member), [RowIndex()])
            index = builder.columns.pop(INDEX, None) or builder.require_row_index()
            builder.columns["aai_o0"] = Literal(i, UINT64)
            builder.columns["aai_o1"] = index
            selects.append(self.build_select(builder, ordered=False))
        union: Expression = selects[0]
        for select in selects[1:]:
            union = exp.Union(this=union, expression=select, distinct=False)
        alias = self.next_alias()
        source = exp.Subquery(this=union, alias=exp.TableAlias(this=sql.identifier(alias)))
        columns: dict[str, ExpressionNode] = {name: Ref(name, dtype, alias) for name, dtype in relation.schema.items()}
        return SelectBuilder(
            source, columns, [SortKey(Ref("aai_o0", UINT64, alias)), SortKey(Ref("aai_o1", UINT64, alias))]
        )

    # --- SELECT --------------------------------------------------------------------------------------------------

    def wrap_as_subquery(self, builder: SelectBuilder, ordered: bool = False) -> SelectBuilder:
        """Make the SELECT a subquery of a new one; its sort keys are passed on under reserved names."""
        hidden_columns = {f"aai_o{i}": key.node for i, key in enumerate(builder.order)}
        outer_key = builder.key if not builder.is_sliced and builder.group is None else None
        if outer_key is not None:
            hidden_columns = {KEY: outer_key}
        alias = self.next_alias()
        inner = replace(builder, columns={**builder.columns, **hidden_columns})
        tree = self.build_select(inner, ordered=ordered or builder.is_sliced)
        source = exp.Subquery(this=tree, alias=exp.TableAlias(this=sql.identifier(alias)))
        columns: dict[str, ExpressionNode] = {
            name: Ref(name, node.type, alias) for name, node in builder.columns.items()
        }
        if outer_key is not None:
            key = Ref(KEY, UINT64, alias)
            return SelectBuilder(source, columns, [SortKey(key)], key, builder.key_start)
        order = [
            SortKey(Ref(f"aai_o{i}", key.node.type, alias), key.descending, key.nulls_first)
            for i, key in enumerate(builder.order)
        ]
        return SelectBuilder(source, columns, order)

    def build_select(
        self,
        builder: SelectBuilder,
        ordered: bool,
        convert_output: Callable[[Expression, DataType], Expression] | None = None,
        extra: tuple[Expression, ...] = (),
    ) -> exp.Select:
        outputs = [
            sql.with_alias(self._output_expression(node, convert_output), name)
            for name, node in builder.columns.items()
        ]
        tree = exp.Select(expressions=[*extra, *outputs])
        tree.set("from_", exp.From(this=builder.source))
        if builder.joins:
            tree.set("joins", builder.joins)
        condition = sql.conjunction([*(self.compile_value(node) for node in builder.where), *builder.checks])
        if condition is not None:
            tree.set("where", exp.Where(this=condition))
        if builder.group:
            tree.set("group", exp.Group(expressions=[self.compile_value(node) for node in builder.group]))
        if builder.having is not None:
            tree.set("having", exp.Having(this=self.compile_value(builder.having)))
        if builder.order and (ordered or builder.is_sliced):
            tree.set("order", exp.Order(expressions=self.compile_sort_keys(builder.order)))
        if builder.limit_by is not None:
            rows, keys = builder.limit_by
            by = [self.compile_value(key) for key in keys]
            tree.set("limit", exp.Limit(expression=sql.number(rows), expressions=by))
        if builder.limit is not None:
            tree.set("limit", exp.Limit(expression=sql.number(builder.limit)))
        if builder.offset:
            tree.set("offset", exp.Offset(expression=sql.number(builder.offset)))
        return tree

    def _output_expression(
        self, node: ExpressionNode, convert_output: Callable[[Expression, DataType], Expression] | None
    ) -> Expression:
        tree = self.compile_value(node)
        if node.type.is_bool and not isinstance(node, Ref):
            tree = sql.cast(tree, node.type)  # ClickHouse comparisons return UInt8
        return tree if convert_output is None else convert_output(tree, node.type)


def _may_start_with_null(order: Sequence[SortKey]) -> bool:
    return bool(order) and (order[0].nulls_first or order[0].node.type.nullable)


def _replace_row_index(node: ExpressionNode, index: ExpressionNode | None) -> ExpressionNode:
    if index is None:
        return node
    return rewrite_node(node, lambda candidate: index if isinstance(candidate, RowIndex) else None)


def _retype_column(node: ExpressionNode, dtype: DataType | None = None) -> ExpressionNode:
    """Return a joined column with its type, which is nullable where a row may be unmatched."""
    column = cast("Ref", node)
    return Ref(column.name, dtype or column.type.as_nullable(), column.alias)


def _first_of_group(node: ExpressionNode, index: ExpressionNode) -> ExpressionNode:
    """The value of the first row of a group, of the type of the column: a group is never empty."""
    first = FunctionCall("first", (node, index))
    return first if node.type.nullable else FunctionCall("_required", (first,))
