"""Which columns of which datasets each column of a query is computed from.

Two answers are kept apart. The *values* of an output column come from the columns in its expression: arguments,
conditions of CASE and -If, and the OVER clause of a window. The *rows* of the result depend on more: filters, join
and group keys, and the order where there is a LIMIT. Names are resolved as ClickHouse does: an alias of the same
SELECT goes before a column, the left table of a join before the right one.

Resolving is also a wall. ClickHouse takes a name that is no column for a function (`arrayMap(file, …)` reads files),
so a query in which one name cannot be resolved to a known column is refused.
"""

# sqlglot's trees are loosely typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false, reportPrivateImportUsage=false, reportArgumentType=false, reportMissingTypeStubs=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import compute
from sqlglot import exp

from aaiclick.catalog.errors import LineageError
from aaiclick.catalog.queries.parse import parse_select, shallow, table_name
from aaiclick.data import sql
from aaiclick.data.errors import nearest


@dataclass(frozen=True, slots=True, order=True)
class ColumnRef:
    """A column of a dataset."""

    dataset: str
    column: str

    def __str__(self) -> str:
        return f"{self.dataset}.{self.column}"


Refs = frozenset[ColumnRef]
NONE: Refs = frozenset()
# How often a recursive WITH is looked at again; each time adds at least one column, so this is never reached in
# earnest.
MAX_ROUNDS = 1000
MAX_COLUMNS = 10_000
"""Columns of one relation."""

MAX_STEPS = 500_000
"""Names and references that one analysis visits. `SELECT *` over a join with itself doubles the columns per level."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """For each output column, in order, where its values come from; and what decides which rows there are.

    `unnamed` are the outputs that are an expression without an alias: ClickHouse makes up their names.
    """

    columns: Mapping[str, Refs]
    rows: Refs
    datasets: frozenset[str]
    unnamed: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Relation:
    """Something to select from. `unknown` is the dataset whose columns nobody has told."""

    columns: dict[str, Refs]
    rows: Refs = NONE
    unknown: str | None = None
    unnamed: tuple[str, ...] = ()

    def find(self, name: str) -> Refs | None:
        found = self.columns.get(name)
        if found is None and self.unknown is not None:
            return frozenset({ColumnRef(self.unknown, name)})
        return found


@dataclass
class _Scope:
    """What names mean inside one SELECT."""

    defined: Mapping[str, _Relation]
    outer: _Scope | None
    tables: list[tuple[str, _Relation]] = field(default_factory=list[tuple[str, _Relation]])
    values: dict[str, Refs] = field(default_factory=dict[str, Refs])
    merged: dict[str, Refs] = field(default_factory=dict[str, Refs])
    aliases: dict[str, exp.Expr] = field(default_factory=dict[str, exp.Expr])
    resolving: set[str] = field(default_factory=set[str])
    windows: dict[str, exp.Expr] = field(default_factory=dict[str, exp.Expr])
    parameters: list[str] = field(default_factory=list[str])
    memory: dict[str, Refs] = field(default_factory=dict[str, Refs])
    holders: dict[str, list[str]] | None = None


def trace(text: str, schemas: Mapping[str, Sequence[str] | None]) -> Lineage:
    """The lineage of a query over datasets with these columns (None: not known).

    Raises LineageError where a name cannot be resolved, QueryRefusedError for what is not a plain SELECT.
    """
    with shallow():
        return trace_tree(parse_select(text), schemas)


def trace_tree(tree: exp.Expr, schemas: Mapping[str, Sequence[str] | None]) -> Lineage:
    tracer = _Tracer(schemas)
    relation = tracer.relation(tree, {}, None)
    if relation.unknown is not None:
        raise _columns_unknown(relation.unknown)
    return Lineage(relation.columns, relation.rows, frozenset(tracer.read), relation.unnamed)


def _columns_unknown(dataset: str) -> LineageError:
    return LineageError(
        f"The columns of {dataset!r:.60} are not known, so * cannot be followed.", remedy="Name the columns."
    )


def _all(parts: Iterable[Refs]) -> Refs:
    return frozenset[ColumnRef]().union(*parts)


class _Tracer:
    def __init__(self, schemas: Mapping[str, Sequence[str] | None]) -> None:
        self._schemas = schemas
        self.read: set[str] = set()
        self._steps = 0

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise LineageError("The query is too large to analyse.", remedy="Name columns instead of *; take it apart.")

    # Relations

    def relation(self, node: exp.Expr, defined: Mapping[str, _Relation], outer: _Scope | None) -> _Relation:
        if isinstance(node, exp.Table):
            return self._table(node, defined)
        if isinstance(node, exp.Final):
            return self.relation(node.this, defined, outer)
        values: dict[str, Refs] = {}
        defined = self._definitions(node, defined, outer, values)
        if isinstance(node, exp.Subquery | exp.Paren):
            return self.relation(node.this, defined, outer)
        if isinstance(node, exp.SetOperation):
            return self._combined(node, defined, outer)
        if isinstance(node, exp.Select):
            return self._select(node, defined, outer, values)
        raise LineageError(f"{type(node).__name__} cannot be followed.", remedy="Write a SELECT.")

    def _table(self, node: exp.Table, defined: Mapping[str, _Relation]) -> _Relation:
        if not node.args.get("db") and node.name in defined:
            return defined[node.name]
        name = table_name(node)
        if name not in self._schemas:
            raise LineageError(f"There is no dataset {name!r:.100}.", remedy=nearest(name, self._schemas))
        self.read.add(name)
        columns = self._schemas[name]
        if columns is None:
            return _Relation({}, unknown=name)
        self._spend(len(columns))
        return _Relation({each: frozenset({ColumnRef(name, each)}) for each in columns})

    def _definitions(
        self, node: exp.Expr, defined: Mapping[str, _Relation], outer: _Scope | None, values: dict[str, Refs]
    ) -> Mapping[str, _Relation]:
        """The names of WITH: tables are added to `defined`, single values to `values`."""
        with_ = node.args.get("with_")
        if not isinstance(with_, exp.With):
            return defined
        known = dict(defined)
        for part in with_.expressions:
            if part.args.get("scalar"):
                scope = _Scope(known, outer, values=values)
                values[part.alias] = self.refs(part.this, scope)
            elif with_.args.get("recursive"):
                known[part.alias] = self._recursive(part, known, outer)
            else:
                known[part.alias] = self.relation(part.this, known, outer)
        return known

    def _recursive(self, part: exp.CTE, defined: Mapping[str, _Relation], outer: _Scope | None) -> _Relation:
        """A relation that reads itself: begun with its first branch, looked at until nothing is added."""
        query = part.this
        first = query
        while isinstance(first, exp.SetOperation | exp.Subquery):
            first = first.this
        relation = self.relation(first, defined, outer)
        for _ in range(MAX_ROUNDS):
            following = self.relation(query, {**defined, part.alias: relation}, outer)
            if following == relation:
                return relation
            relation = following
        raise LineageError(f"The recursion of {part.alias!r:.60} cannot be followed.")

    def _combined(self, node: exp.SetOperation, defined: Mapping[str, _Relation], outer: _Scope | None) -> _Relation:
        left = self.relation(node.this, defined, outer)
        right = self.relation(node.expression, defined, outer)
        for side in (left, right):
            if side.unknown is not None:
                raise _columns_unknown(side.unknown)
        if len(left.columns) != len(right.columns):
            raise LineageError(
                f"The branches have {len(left.columns)} and {len(right.columns)} columns.",
                remedy="Select as many in each.",
            )
        rows = left.rows | right.rows
        self._spend(len(rows) + sum(len(each) for side in (left, right) for each in side.columns.values()))
        if isinstance(node, exp.Union):
            pairs = zip(left.columns, left.columns.values(), right.columns.values(), strict=True)
            return _Relation({name: one | other for name, one, other in pairs}, rows, unnamed=left.unnamed)
        # INTERSECT and EXCEPT take values from the left; the right decides which rows.
        return _Relation(left.columns, rows | _all(right.columns.values()), unnamed=left.unnamed)

    # One SELECT

    def _select(
        self, node: exp.Select, defined: Mapping[str, _Relation], outer: _Scope | None, values: dict[str, Refs]
    ) -> _Relation:
        scope = _Scope(defined, outer, values=dict(values))
        rows = list[Refs]()
        from_ = node.args.get("from_")
        if from_ is not None:
            self._add_source(from_.this, scope, rows)
        for each in node.expressions:
            if isinstance(each, exp.Alias):
                scope.aliases.setdefault(each.alias, each.this)
        for each in node.args.get("joins") or ():
            self._join(each, scope, rows)
        for each in node.args.get("windows") or ():
            scope.windows[each.name] = each
        columns: dict[str, Refs] = {}
        unnamed, numbers = list[str](), dict[str, int]()
        for each in node.expressions:
            for name, refs, named in self._outputs(each, scope):
                self._spend(1 + len(refs))
                if len(columns) >= MAX_COLUMNS:
                    raise LineageError(f"A SELECT has more than {MAX_COLUMNS:,} columns.", remedy="Name the columns.")
                if not named:
                    unnamed.append(name)
                columns[_free(name, columns, numbers)] = refs
        rows.append(self._deciding(node, scope))
        return _Relation(columns, _all(rows), unnamed=tuple(unnamed))

    def _add_source(self, source: exp.Expr, scope: _Scope, rows: list[Refs]) -> _Relation:
        relation = self.relation(source, scope.defined, scope.outer)
        inner = source.this if isinstance(source, exp.Final) else source
        scope.holders = None
        scope.tables.append((inner.alias or (inner.name if isinstance(inner, exp.Table) else ""), relation))
        rows.append(relation.rows)
        for each in inner.args.get("joins") or ():
            self._join(each, scope, rows)
        return relation

    def _join(self, join: exp.Join, scope: _Scope, rows: list[Refs]) -> None:
        if join.args.get("kind") == "ARRAY":
            # The arrays are read from the tables, not from the names they are given.
            found = {each.alias_or_name: self.refs(each, scope) for each in (join.this, *join.expressions)}
            scope.values.update(found)
            rows.append(_all(found.values()))
            return
        left = list(scope.tables)
        right = self._add_source(join.this, scope, rows)
        for each in join.args.get("using") or ():
            name = each.name
            mine = scope.merged.get(name) or _found(left, name)
            other = right.find(name)
            if mine is None or other is None:
                raise LineageError(f"There is no column {name!r:.60} on both sides of USING.")
            rows.append(mine | other)
            side = str(join.args.get("side") or "")
            scope.merged[name] = mine | other if side == "FULL" else other if side == "RIGHT" else mine
        if join.args.get("on") is not None:
            rows.append(self.refs(join.args["on"], scope))

    def _deciding(self, node: exp.Select, scope: _Scope) -> Refs:
        """The columns that decide which rows there are."""
        parts = list[exp.Expr]()
        for key in ("where", "prewhere", "having", "qualify", "distinct"):
            if node.args.get(key) is not None:
                parts.append(node.args[key])
        group = node.args.get("group")
        if group is not None:
            parts.extend(self._positions(group.iter_expressions(), node))
            if group.args.get("all"):
                parts.extend(each for each in node.expressions if not _aggregates(each))
        limit, order = node.args.get("limit"), node.args.get("order")
        if order is not None:
            ordered = list(self._positions((each.this for each in order.expressions), node))
            found = _all(self.refs(each, scope) for each in ordered)  # also to refuse names that are no columns
            rest = _all(
                self.refs(each.args["with_fill"], scope) for each in order.expressions if each.args.get("with_fill")
            )
            if limit is not None or node.args.get("offset") is not None:
                return _all(self.refs(each, scope) for each in [*parts, limit] if each is not None) | found | rest
        return _all(self.refs(each, scope) for each in [*parts, limit, node.args.get("offset")] if each is not None)

    def _positions(self, parts: Iterable[exp.Expr], node: exp.Select) -> Iterator[exp.Expr]:
        """ORDER BY 2 means the second output."""
        for part in parts:
            number = int(part.name) if isinstance(part, exp.Literal) and part.is_int else 0
            yield node.expressions[number - 1] if 1 <= number <= len(node.expressions) else part

    # Outputs

    def _outputs(self, node: exp.Expr, scope: _Scope) -> Iterator[tuple[str, Refs, bool]]:
        """Name, lineage, and whether the name was given, of each column that an item of the SELECT list makes."""
        if isinstance(node, exp.Star):
            yield from self._star(node, None, scope)
        elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            yield from self._star(node.this, node.text("table"), scope)
        elif isinstance(node, exp.Columns):
            yield from self._matching(node, scope)
        elif isinstance(node, exp.Alias):
            yield node.alias, self._aliased(node.alias, node.this, scope), True
        elif isinstance(node, exp.Column):
            table = node.text("table")
            yield _shown(table, node.name, scope) if table else node.name, self.refs(node, scope), True
        else:
            yield sql.to_text(node.copy()), self.refs(node, scope), False

    def _star(self, star: exp.Star, table: str | None, scope: _Scope) -> Iterator[tuple[str, Refs, bool]]:
        left_out = {each.name for each in star.args.get("except_") or ()}
        replaced = {each.alias: each.this for each in star.args.get("replace") or ()}
        renamed = {each.this.name: each.alias for each in star.args.get("rename") or ()}
        seen = set[str]()
        for alias, relation in scope.tables:
            if table is not None and alias != table:
                continue
            if relation.unknown is not None:
                raise _columns_unknown(relation.unknown)
            for name, refs in relation.columns.items():
                merged = table is None and name in scope.merged
                if name in left_out or (merged and name in seen):
                    continue
                shown = name if merged else _shown(alias, name, scope)
                seen.add(name)
                found = scope.merged.get(name, refs) if table is None else refs
                if name in replaced:
                    found = self.refs(replaced[name], scope)
                elif table is None and name in scope.values:
                    found = scope.values[name]
                yield renamed.get(shown, shown), found, True
        if table is not None and all(alias != table for alias, _ in scope.tables):
            raise LineageError(f"There is no table {table!r:.60} here.", remedy=_tables(scope))

    def _matching(self, node: exp.Columns, scope: _Scope) -> Iterator[tuple[str, Refs, bool]]:
        if not isinstance(node.this, exp.Literal):
            raise LineageError("COLUMNS takes a pattern in quotes.", remedy="Name the columns.")
        columns = list(self._star(exp.Star(), None, scope))
        matches = _match(node.this.name, [name for name, _, _ in columns])
        yield from (column for column, is_match in zip(columns, matches, strict=True) if is_match)

    # Expressions

    def refs(self, node: exp.Expr, scope: _Scope) -> Refs:
        """Every column that an expression reads."""
        found = self._refs(node, scope)
        self._spend(1 + len(found))
        return found

    def _refs(self, node: exp.Expr, scope: _Scope) -> Refs:
        if isinstance(node, exp.Column):
            return NONE if isinstance(node.this, exp.Star) else self._column(node, scope)
        if isinstance(node, exp.Query) or (isinstance(node, exp.Paren) and isinstance(node.this, exp.Query)):
            relation = self.relation(node, scope.defined, scope)
            if relation.unknown is not None:
                raise _columns_unknown(relation.unknown)
            return _all(relation.columns.values()) | relation.rows
        if isinstance(node, exp.Identifier):
            return self._parameter(node, scope)
        if isinstance(node, exp.Lambda):
            return self._lambda(node, scope)
        if isinstance(node, exp.Window):
            return self._window(node, scope)
        if isinstance(node, exp.Alias):
            return self._aliased(node.alias, node.this, scope)
        if isinstance(node, exp.Aliases | exp.Columns | exp.Table):
            raise LineageError(f"{type(node).__name__} cannot stand here.", remedy="Name the columns.")
        if isinstance(node, exp.Dot):
            return self.refs(node.this, scope)
        if isinstance(node, exp.DataType):
            return NONE
        return _all(self.refs(each, scope) for each in node.iter_expressions())

    def _window(self, node: exp.Window, scope: _Scope) -> Refs:
        named = node.args.get("alias")
        parts = [each for key, each in node.args.items() if key not in ("alias", "first", "over") and each is not None]
        flat = [each for part in parts for each in (part if isinstance(part, list) else [part])]
        found = _all(
            self.refs(each, scope)
            for each in flat
            if isinstance(each, exp.Expr)
            and not (isinstance(each, exp.Identifier) and node is scope.windows.get(each.name))
        )
        if named is None:
            return found
        if named.name not in scope.windows:
            raise LineageError(f"There is no window {named.name!r:.60}.", remedy=nearest(named.name, scope.windows))
        window = scope.windows[named.name]
        if window is node:
            raise LineageError(f"The window {named.name!r:.60} refers to itself.")
        return found | self.refs(window, scope)

    def _lambda(self, node: exp.Lambda, scope: _Scope) -> Refs:
        names = [each.name for each in node.expressions]
        scope.parameters.extend(names)
        try:
            return self.refs(node.this, scope)
        finally:
            del scope.parameters[len(scope.parameters) - len(names) :]

    def _parameter(self, node: exp.Identifier, scope: _Scope) -> Refs:
        around: _Scope | None = scope
        while around is not None:
            if node.name in around.parameters:
                return NONE
            around = around.outer
        raise LineageError(f"There is no column {node.name!r:.60}.", remedy=_nearest_column(node.name, scope))

    def _aliased(self, name: str, expression: exp.Expr, scope: _Scope) -> Refs:
        if scope.aliases.get(name) is not expression:
            return self.refs(expression, scope)
        if name not in scope.memory:
            if name in scope.resolving:
                raise LineageError(f"The alias {name!r:.60} refers to itself.", remedy="Give it another name.")
            scope.resolving.add(name)
            scope.memory[name] = self.refs(expression, scope)
            scope.resolving.discard(name)
        return scope.memory[name]

    def _column(self, node: exp.Column, scope: _Scope) -> Refs:
        parts = [part.name for part in node.parts]
        around: _Scope | None = scope
        while around is not None:
            found = self._named(parts, around)
            if found is not None:
                return found
            around = around.outer
        raise LineageError(f"There is no column {'.'.join(parts)!r:.100}.", remedy=_nearest_column(parts[-1], scope))

    def _named(self, parts: list[str], scope: _Scope) -> Refs | None:
        name = parts[0]
        if name in scope.parameters:
            return NONE
        if len(parts) == 1:
            return self._simple(name, scope)
        # table.column, a column with dots in its name, or a part of a column: in the order of ClickHouse.
        for size in range(len(parts) - 1, 0, -1):
            relation = next((each for alias, each in scope.tables if alias == ".".join(parts[:size])), None)
            if relation is None and size == 2:
                relation = next((each for alias, each in scope.tables if alias == parts[1]), None)
            if relation is not None:
                found = relation.find(".".join(parts[size:])) or relation.find(parts[size])
                if found is not None:
                    return found
        known = [each for each in scope.tables if each[1].unknown is None]
        found = _found(known, ".".join(parts))
        return found if found is not None else self._simple(name, scope, columns_only=known)

    def _simple(self, name: str, scope: _Scope, columns_only: list[tuple[str, _Relation]] | None = None) -> Refs | None:
        if name in scope.aliases and name not in scope.resolving:
            return self._aliased(name, scope.aliases[name], scope)
        if name in scope.values:
            return scope.values[name]
        if name in scope.merged:
            return scope.merged[name]
        return _found(scope.tables if columns_only is None else columns_only, name)


def _found(tables: list[tuple[str, _Relation]], name: str) -> Refs | None:
    """The leftmost table that has the column; one whose columns are not known comes after all others."""
    for unknown in (False, True):
        for _, relation in tables:
            if (relation.unknown is not None) is unknown:
                found = relation.find(name)
                if found is not None:
                    return found
    return None


def _shown(alias: str, name: str, scope: _Scope) -> str:
    """The name that ClickHouse gives to a column of one table: the table's is before it where another has it too.

    Of two tables the left one's column keeps its plain name; of three or more none does.
    """
    if scope.holders is None:
        scope.holders = {}
        for each, relation in scope.tables:
            for column in relation.columns:
                scope.holders.setdefault(column, []).append(each)
    holders = scope.holders.get(name, [])
    if alias not in holders or len(holders) < 2 or (len(scope.tables) == 2 and alias == holders[0]):
        return name
    return f"{alias}.{name}"


def _free(name: str, taken: Mapping[str, Refs], numbers: dict[str, int]) -> str:
    """Two outputs of one name stay apart. `numbers` has the last number of each name."""
    shown, number = name, numbers.get(name, 1)
    while shown in taken:
        number += 1
        shown = f"{name}_{number}"
    numbers[name] = number
    return shown


def _match(pattern: str, names: list[str]) -> list[bool]:
    """Which names a pattern matches, by RE2 as in ClickHouse: linear in their length for every pattern."""
    try:
        return compute.match_substring_regex(pa.array(names, pa.string()), pattern).to_pylist()
    except pa.ArrowInvalid:
        raise LineageError(f"The pattern {pattern!r:.60} cannot be read.", remedy="Name the columns.") from None


def _aggregates(node: exp.Expr) -> bool:
    return any(not isinstance(each.parent, exp.Window) for each in node.find_all(exp.AggFunc))


def _tables(scope: _Scope) -> str:
    names = ", ".join(repr(alias) for alias, _ in scope.tables if alias)
    return f"There is: {names}." if names else ""


def _nearest_column(name: str, scope: _Scope) -> str:
    names = {each for _, relation in scope.tables for each in relation.columns} | set(scope.aliases) | set(scope.values)
    return nearest(name, names)
