"""Column lineage of a query: the dataset columns that each output column is computed from.

Two kinds of lineage are kept apart. The *values* of an output column come from the columns in its expression:
arguments, conditions of CASE and -If, and the OVER clause of a window. The *rows* of the result also depend on filters,
join and group keys, and on the order if there is a LIMIT. Names are resolved as in ClickHouse: an alias of the same
SELECT takes precedence over a column, the left table of a join over the right one.

Resolution is also a security check. ClickHouse treats a name that is no column as a function (`arrayMap(file, …)` reads
files), so a query with an unresolved name is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from sqlglot import exp

from aaiclick.catalog.errors import LineageError
from aaiclick.catalog.queries.column_scopes import (
    NO_REFS,
    ColumnRef,
    Refs,
    SelectScope,
    TracedRelation,
    find_column,
    list_tables,
    match_names,
    nearest_column,
    output_name,
    unique_name,
)
from aaiclick.catalog.queries.select_parser import limit_recursion, parse_select, table_name
from aaiclick.data.compile import sql
from aaiclick.data.errors import suggest_name

# Rounds of a recursive WITH; each one adds at least one column, so the limit is never reached in practice.
MAX_ROUNDS = 1000
MAX_COLUMNS = 10_000
"""Columns of one relation."""

MAX_STEPS = 500_000
"""Names and references that one analysis visits. `SELECT *` over a join with itself doubles the columns per level."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The sources of each output column, in order, and of the choice of rows.

    `unnamed` are outputs that are an expression without an alias: ClickHouse generates their names.
    """

    columns: Mapping[str, Refs]
    rows: Refs
    datasets: frozenset[str]
    unnamed: tuple[str, ...] = ()


def trace_query(text: str, schemas: Mapping[str, Sequence[str] | None]) -> Lineage:
    """Return the lineage of a query over datasets with these columns (None: not known).

    Raises LineageError for an unresolved name, QueryRefusedError if it is not a plain SELECT.
    """
    with limit_recursion():
        return trace_tree(parse_select(text), schemas)


def trace_tree(tree: exp.Expr, schemas: Mapping[str, Sequence[str] | None]) -> Lineage:
    tracer = _Tracer(schemas)
    relation = tracer.trace_relation(tree, {}, None)
    if relation.unknown is not None:
        raise _unknown_columns_error(relation.unknown)
    return Lineage(relation.columns, relation.rows, frozenset(tracer.read), relation.unnamed)


def _unknown_columns_error(dataset: str) -> LineageError:
    return LineageError(
        f"The columns of {dataset!r:.60} are not known, so * cannot be traced.", remedy="Name the columns."
    )


def _union(parts: Iterable[Refs]) -> Refs:
    return frozenset[ColumnRef]().union(*parts)


class _Tracer:
    def __init__(self, schemas: Mapping[str, Sequence[str] | None]) -> None:
        self._schemas = schemas
        self.read: set[str] = set()
        self._steps = 0

    def _count_steps(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise LineageError("The query is too large to analyse.", remedy="Name columns instead of *; take it apart.")

    # Relations

    def trace_relation(
        self, node: exp.Expr, defined: Mapping[str, TracedRelation], outer: SelectScope | None
    ) -> TracedRelation:
        if isinstance(node, exp.Table):
            return self._trace_table(node, defined)
        if isinstance(node, exp.Final):
            return self.trace_relation(node.this, defined, outer)
        values: dict[str, Refs] = {}
        defined = self._trace_with(node, defined, outer, values)
        if isinstance(node, exp.Subquery | exp.Paren):
            return self.trace_relation(node.this, defined, outer)
        if isinstance(node, exp.SetOperation):
            return self._trace_set_operation(node, defined, outer)
        if isinstance(node, exp.Select):
            return self._trace_select(node, defined, outer, values)
        raise LineageError(f"{type(node).__name__} cannot be traced.", remedy="Write a SELECT.")

    def _trace_table(self, node: exp.Table, defined: Mapping[str, TracedRelation]) -> TracedRelation:
        if not node.args.get("db") and node.name in defined:
            return defined[node.name]
        name = table_name(node)
        if name not in self._schemas:
            raise LineageError(f"There is no dataset {name!r:.100}.", remedy=suggest_name(name, self._schemas))
        self.read.add(name)
        columns = self._schemas[name]
        if columns is None:
            return TracedRelation({}, unknown=name)
        self._count_steps(len(columns))
        return TracedRelation({column: frozenset({ColumnRef(name, column)}) for column in columns})

    def _trace_with(
        self, node: exp.Expr, defined: Mapping[str, TracedRelation], outer: SelectScope | None, values: dict[str, Refs]
    ) -> Mapping[str, TracedRelation]:
        """Return `defined` plus the tables of WITH; scalar expressions are added to `values`."""
        with_ = node.args.get("with_")
        if not isinstance(with_, exp.With):
            return defined
        relations = dict(defined)
        for part in with_.expressions:
            if part.args.get("scalar"):
                scope = SelectScope(relations, outer, values=values)
                values[part.alias] = self.trace_expression(part.this, scope)
            elif with_.args.get("recursive"):
                relations[part.alias] = self._trace_recursive(part, relations, outer)
            else:
                relations[part.alias] = self.trace_relation(part.this, relations, outer)
        return relations

    def _trace_recursive(
        self, part: exp.CTE, defined: Mapping[str, TracedRelation], outer: SelectScope | None
    ) -> TracedRelation:
        """Trace a recursive relation: start with its first branch, repeat until nothing is added."""
        query = part.this
        first = query
        while isinstance(first, exp.SetOperation | exp.Subquery):
            first = first.this
        relation = self.trace_relation(first, defined, outer)
        for _ in range(MAX_ROUNDS):
            following = self.trace_relation(query, {**defined, part.alias: relation}, outer)
            if following == relation:
                return relation
            relation = following
        raise LineageError(f"The recursion of {part.alias!r:.60} cannot be traced.")

    def _trace_set_operation(
        self, node: exp.SetOperation, defined: Mapping[str, TracedRelation], outer: SelectScope | None
    ) -> TracedRelation:
        left = self.trace_relation(node.this, defined, outer)
        right = self.trace_relation(node.expression, defined, outer)
        for side in (left, right):
            if side.unknown is not None:
                raise _unknown_columns_error(side.unknown)
        if len(left.columns) != len(right.columns):
            raise LineageError(
                f"The branches have {len(left.columns)} and {len(right.columns)} columns.",
                remedy="Select as many in each.",
            )
        rows = left.rows | right.rows
        self._count_steps(len(rows) + sum(len(refs) for side in (left, right) for refs in side.columns.values()))
        if isinstance(node, exp.Union):
            pairs = zip(left.columns, left.columns.values(), right.columns.values(), strict=True)
            return TracedRelation({name: one | other for name, one, other in pairs}, rows, unnamed=left.unnamed)
        # INTERSECT and EXCEPT take values from the left side; the right side only filters rows.
        return TracedRelation(left.columns, rows | _union(right.columns.values()), unnamed=left.unnamed)

    # One SELECT

    def _trace_select(
        self,
        node: exp.Select,
        defined: Mapping[str, TracedRelation],
        outer: SelectScope | None,
        values: dict[str, Refs],
    ) -> TracedRelation:
        scope = SelectScope(defined, outer, values=dict(values))
        rows = list[Refs]()
        from_ = node.args.get("from_")
        if from_ is not None:
            self._add_source(from_.this, scope, rows)
        for expression in node.expressions:
            if isinstance(expression, exp.Alias):
                scope.aliases.setdefault(expression.alias, expression.this)
        for join in node.args.get("joins") or ():
            self._trace_join(join, scope, rows)
        for window in node.args.get("windows") or ():
            scope.windows[window.name] = window
        columns: dict[str, Refs] = {}
        unnamed, numbers = list[str](), dict[str, int]()
        for expression in node.expressions:
            for name, refs, named in self._trace_outputs(expression, scope):
                self._count_steps(1 + len(refs))
                if len(columns) >= MAX_COLUMNS:
                    raise LineageError(f"A SELECT has more than {MAX_COLUMNS:,} columns.", remedy="Name the columns.")
                if not named:
                    unnamed.append(name)
                columns[unique_name(name, columns, numbers)] = refs
        rows.append(self._trace_row_filters(node, scope))
        return TracedRelation(columns, _union(rows), unnamed=tuple(unnamed))

    def _add_source(self, source: exp.Expr, scope: SelectScope, rows: list[Refs]) -> TracedRelation:
        relation = self.trace_relation(source, scope.defined, scope.outer)
        inner = source.this if isinstance(source, exp.Final) else source
        scope.holders = None
        scope.tables.append((inner.alias or (inner.name if isinstance(inner, exp.Table) else ""), relation))
        rows.append(relation.rows)
        for join in inner.args.get("joins") or ():
            self._trace_join(join, scope, rows)
        return relation

    def _trace_join(self, join: exp.Join, scope: SelectScope, rows: list[Refs]) -> None:
        if join.args.get("kind") == "ARRAY":
            # The arrays are resolved in the tables, before their aliases exist.
            arrays = {
                array.alias_or_name: self.trace_expression(array, scope) for array in (join.this, *join.expressions)
            }
            scope.values.update(arrays)
            rows.append(_union(arrays.values()))
            return
        left = list(scope.tables)
        right = self._add_source(join.this, scope, rows)
        for key in join.args.get("using") or ():
            name = key.name
            left_refs = scope.merged.get(name) or find_column(left, name)
            right_refs = right.find(name)
            if left_refs is None or right_refs is None:
                raise LineageError(f"There is no column {name!r:.60} on both sides of USING.")
            rows.append(left_refs | right_refs)
            side = str(join.args.get("side") or "")
            scope.merged[name] = (
                left_refs | right_refs if side == "FULL" else right_refs if side == "RIGHT" else left_refs
            )
        if join.args.get("on") is not None:
            rows.append(self.trace_expression(join.args["on"], scope))

    def _trace_row_filters(self, node: exp.Select, scope: SelectScope) -> Refs:
        """Return the columns that decide which rows are in the result."""
        parts = list[exp.Expr]()
        for key in ("where", "prewhere", "having", "qualify", "distinct"):
            if node.args.get(key) is not None:
                parts.append(node.args[key])
        group = node.args.get("group")
        if group is not None:
            parts.extend(self._resolve_positions(group.iter_expressions(), node))
            if group.args.get("all"):
                parts.extend(expression for expression in node.expressions if not _has_aggregate(expression))
        limit, order = node.args.get("limit"), node.args.get("order")
        if order is not None:
            ordered = list(self._resolve_positions((item.this for item in order.expressions), node))
            order_refs = _union(
                self.trace_expression(expression, scope) for expression in ordered
            )  # also to refuse names that are no columns
            fill_refs = _union(
                self.trace_expression(item.args["with_fill"], scope)
                for item in order.expressions
                if item.args.get("with_fill")
            )
            if limit is not None or node.args.get("offset") is not None:
                return (
                    _union(self.trace_expression(part, scope) for part in [*parts, limit] if part is not None)
                    | order_refs
                    | fill_refs
                )
        return _union(
            self.trace_expression(part, scope) for part in [*parts, limit, node.args.get("offset")] if part is not None
        )

    def _resolve_positions(self, parts: Iterable[exp.Expr], node: exp.Select) -> Iterator[exp.Expr]:
        """Replace positions: ORDER BY 2 means the second output."""
        for part in parts:
            number = int(part.name) if isinstance(part, exp.Literal) and part.is_int else 0
            yield node.expressions[number - 1] if 1 <= number <= len(node.expressions) else part

    # Outputs

    def _trace_outputs(self, node: exp.Expr, scope: SelectScope) -> Iterator[tuple[str, Refs, bool]]:
        """Yield name, lineage and whether the name is explicit, for each column of an item in the SELECT list."""
        if isinstance(node, exp.Star):
            yield from self._expand_star(node, None, scope)
        elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            yield from self._expand_star(node.this, node.text("table"), scope)
        elif isinstance(node, exp.Columns):
            yield from self._expand_columns(node, scope)
        elif isinstance(node, exp.Alias):
            yield node.alias, self._trace_alias(node.alias, node.this, scope), True
        elif isinstance(node, exp.Column):
            table = node.text("table")
            yield (
                output_name(table, node.name, scope) if table else node.name,
                self.trace_expression(node, scope),
                True,
            )
        else:
            yield sql.to_text(node.copy()), self.trace_expression(node, scope), False

    def _expand_star(self, star: exp.Star, table: str | None, scope: SelectScope) -> Iterator[tuple[str, Refs, bool]]:
        left_out = {item.name for item in star.args.get("except_") or ()}
        replaced = {item.alias: item.this for item in star.args.get("replace") or ()}
        renamed = {item.this.name: item.alias for item in star.args.get("rename") or ()}
        names = set[str]()
        for alias, relation in scope.tables:
            if table is not None and alias != table:
                continue
            if relation.unknown is not None:
                raise _unknown_columns_error(relation.unknown)
            for name, refs in relation.columns.items():
                merged = table is None and name in scope.merged
                if name in left_out or (merged and name in names):
                    continue
                shown = name if merged else output_name(alias, name, scope)
                names.add(name)
                column_refs = scope.merged.get(name, refs) if table is None else refs
                if name in replaced:
                    column_refs = self.trace_expression(replaced[name], scope)
                elif table is None and name in scope.values:
                    column_refs = scope.values[name]
                yield renamed.get(shown, shown), column_refs, True
        if table is not None and all(alias != table for alias, _ in scope.tables):
            raise LineageError(f"There is no table {table!r:.60} here.", remedy=list_tables(scope))

    def _expand_columns(self, node: exp.Columns, scope: SelectScope) -> Iterator[tuple[str, Refs, bool]]:
        if not isinstance(node.this, exp.Literal):
            raise LineageError("COLUMNS takes a pattern in quotes.", remedy="Name the columns.")
        columns = list(self._expand_star(exp.Star(), None, scope))
        matches = match_names(node.this.name, [name for name, _, _ in columns])
        yield from (column for column, is_match in zip(columns, matches, strict=True) if is_match)

    # Expressions

    def trace_expression(self, node: exp.Expr, scope: SelectScope) -> Refs:
        """Return every column that an expression reads."""
        refs = self._trace_node(node, scope)
        self._count_steps(1 + len(refs))
        return refs

    def _trace_node(self, node: exp.Expr, scope: SelectScope) -> Refs:
        if isinstance(node, exp.Column):
            return NO_REFS if isinstance(node.this, exp.Star) else self._trace_column(node, scope)
        if isinstance(node, exp.Query) or (isinstance(node, exp.Paren) and isinstance(node.this, exp.Query)):
            relation = self.trace_relation(node, scope.defined, scope)
            if relation.unknown is not None:
                raise _unknown_columns_error(relation.unknown)
            return _union(relation.columns.values()) | relation.rows
        if isinstance(node, exp.Identifier):
            return self._check_parameter(node, scope)
        if isinstance(node, exp.Lambda):
            return self._trace_lambda(node, scope)
        if isinstance(node, exp.Window):
            return self._trace_window(node, scope)
        if isinstance(node, exp.Alias):
            return self._trace_alias(node.alias, node.this, scope)
        if isinstance(node, exp.Aliases | exp.Columns | exp.Table):
            raise LineageError(f"{type(node).__name__} cannot stand here.", remedy="Name the columns.")
        if isinstance(node, exp.Dot):
            return self.trace_expression(node.this, scope)
        if isinstance(node, exp.DataType):
            return NO_REFS
        return _union(self.trace_expression(child, scope) for child in node.iter_expressions())

    def _trace_window(self, node: exp.Window, scope: SelectScope) -> Refs:
        window_name = node.args.get("alias")
        parts = [
            value for key, value in node.args.items() if key not in ("alias", "first", "over") and value is not None
        ]
        flat = [node_ for part in parts for node_ in (cast("list[object]", part) if isinstance(part, list) else [part])]
        refs = _union(
            self.trace_expression(node_, scope)
            for node_ in flat
            if isinstance(node_, exp.Expr)
            and not (isinstance(node_, exp.Identifier) and node is scope.windows.get(node_.name))
        )
        if window_name is None:
            return refs
        if window_name.name not in scope.windows:
            raise LineageError(
                f"There is no window {window_name.name!r:.60}.", remedy=suggest_name(window_name.name, scope.windows)
            )
        window = scope.windows[window_name.name]
        if window is node:
            raise LineageError(f"The window {window_name.name!r:.60} refers to itself.")
        return refs | self.trace_expression(window, scope)

    def _trace_lambda(self, node: exp.Lambda, scope: SelectScope) -> Refs:
        names = [parameter.name for parameter in node.expressions]
        scope.parameters.extend(names)
        try:
            return self.trace_expression(node.this, scope)
        finally:
            del scope.parameters[len(scope.parameters) - len(names) :]

    def _check_parameter(self, node: exp.Identifier, scope: SelectScope) -> Refs:
        around: SelectScope | None = scope
        while around is not None:
            if node.name in around.parameters:
                return NO_REFS
            around = around.outer
        raise LineageError(f"There is no column {node.name!r:.60}.", remedy=nearest_column(node.name, scope))

    def _trace_alias(self, name: str, expression: exp.Expr, scope: SelectScope) -> Refs:
        if scope.aliases.get(name) is not expression:
            return self.trace_expression(expression, scope)
        if name not in scope.alias_refs:
            if name in scope.resolving:
                raise LineageError(f"The alias {name!r:.60} refers to itself.", remedy="Give it another name.")
            scope.resolving.add(name)
            scope.alias_refs[name] = self.trace_expression(expression, scope)
            scope.resolving.discard(name)
        return scope.alias_refs[name]

    def _trace_column(self, node: exp.Column, scope: SelectScope) -> Refs:
        parts = [part.name for part in node.parts]
        around: SelectScope | None = scope
        while around is not None:
            refs = self._resolve_name(parts, around)
            if refs is not None:
                return refs
            around = around.outer
        raise LineageError(f"There is no column {'.'.join(parts)!r:.100}.", remedy=nearest_column(parts[-1], scope))

    def _resolve_name(self, parts: list[str], scope: SelectScope) -> Refs | None:
        name = parts[0]
        if name in scope.parameters:
            return NO_REFS
        if len(parts) == 1:
            return self._resolve_simple_name(name, scope)
        # table.column, a column with dots in its name, or a part of a column: in the order of ClickHouse.
        for size in range(len(parts) - 1, 0, -1):
            relation = next((relation_ for alias, relation_ in scope.tables if alias == ".".join(parts[:size])), None)
            if relation is None and size == 2:
                relation = next((relation_ for alias, relation_ in scope.tables if alias == parts[1]), None)
            if relation is not None:
                refs = relation.find(".".join(parts[size:])) or relation.find(parts[size])
                if refs is not None:
                    return refs
        known_tables = [table for table in scope.tables if table[1].unknown is None]
        refs = find_column(known_tables, ".".join(parts))
        return refs if refs is not None else self._resolve_simple_name(name, scope, columns_only=known_tables)

    def _resolve_simple_name(
        self, name: str, scope: SelectScope, columns_only: list[tuple[str, TracedRelation]] | None = None
    ) -> Refs | None:
        if name in scope.aliases and name not in scope.resolving:
            return self._trace_alias(name, scope.aliases[name], scope)
        if name in scope.values:
            return scope.values[name]
        if name in scope.merged:
            return scope.merged[name]
        return find_column(scope.tables if columns_only is None else columns_only, name)


def _has_aggregate(node: exp.Expr) -> bool:
    return any(not isinstance(function.parent, exp.Window) for function in node.find_all(exp.AggFunc))
