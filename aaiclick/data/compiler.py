"""Relations in, one ClickHouse SELECT out.

Columns are always written with the alias of their FROM item: ClickHouse would otherwise take `x` in `SELECT x + 1 AS
x …
WHERE x > 1` for the alias and not for the column.
"""

# sqlglot's trees are loosely typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false, reportPrivateImportUsage=false, reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from sqlglot import exp

from aaiclick.data import sql
from aaiclick.data.frame import KEY, Frame, buried_windows, is_large, needs_index, resolve
from aaiclick.data.functions import FUNCTIONS
from aaiclick.data.literals import bound
from aaiclick.data.nodes import (
    Call,
    Literal,
    Node,
    Over,
    Ref,
    RowIndex,
    Scalar,
    SortKey,
    has_window,
    rewrite,
    substitute,
)
from aaiclick.data.relations import (
    Aggregate,
    Columns,
    Concat,
    Distinct,
    Explode,
    Filter,
    Join,
    Project,
    Relation,
    Scan,
    Slice,
    Sort,
    Zip,
)
from aaiclick.data.sql import Expression
from aaiclick.data.types import UINT8, UINT64, DataType

INDEX = "aai_n"
PREDICATE = "aai_p"
ELEMENT = "aai_j"
CONSTANT = "aai_c"
LENGTH_MARK = "aai_length"
"""Text of the error by which a query reports that Objects differ in length."""

TEXT_PIECE = 15_000
LIST_PIECE = 4_000
JOIN_WORDS = {
    "inner": "INNER", "left": "LEFT", "right": "RIGHT", "full": "FULL", "cross": "CROSS", "semi": "LEFT SEMI",
    "anti": "LEFT ANTI", "asof": "ASOF LEFT",
}  # fmt: skip


@dataclass
class Compiler:
    """Compiles one query; aliases and parameters are numbered through all its subqueries."""

    parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    _bound: dict[Literal, str] = field(default_factory=dict[Literal, str])
    _aliases: int = 0

    # --- values --------------------------------------------------------------------------------------------------

    def value(self, node: Node) -> Expression:
        if isinstance(node, Ref):
            return sql.column(node.alias, node.name)
        if isinstance(node, Literal):
            return self._literal(node)
        if isinstance(node, Call):
            return self._call(node, lambda tree: tree)
        if isinstance(node, Over):
            return self._over(node)
        if isinstance(node, Scalar):
            return exp.Paren(this=self.select(self.frame(node.relation), ordered=False))
        raise TypeError(node)

    def _literal(self, node: Literal) -> Expression:
        if node.value is None:
            return sql.null()
        if node.kind.name == "Array" and node.kind.element.is_unknown and not node.value:
            return sql.call("array")
        pieces = split(node)
        if len(pieces) > 1:
            joined = "arrayConcat" if node.kind.name == "Array" else "concat"
            return sql.call(joined, *(self._parameter(piece) for piece in pieces))
        return self._parameter(node)

    def _parameter(self, node: Literal) -> Expression:
        if node not in self._bound:
            parameter = f"p{len(self._bound)}"
            self._bound[node] = parameter
            self.parameters[parameter] = bound(node.value, node.kind)
        return sql.placeholder(self._bound[node], node.kind)

    def _call(self, node: Call, over: Callable[[Expression], Expression]) -> Expression:
        function = FUNCTIONS[node.function]
        args = [self.value(arg) for arg in node.args]
        return function.build(args, tuple(arg.type for arg in node.args), node.params, over)

    def _over(self, node: Over) -> Expression:
        partition = [self.value(each) for each in node.partition]
        order = [self.sort_term(key) for key in node.order]
        frame = node.frame or (
            ("UNBOUNDED PRECEDING", "UNBOUNDED FOLLOWING") if order and node.call.function == "shift" else None
        )

        def window(tree: Expression) -> Expression:
            return sql.window(tree, [p.copy() for p in partition], [o.copy() for o in order], frame)

        return self._call(node.call, window)

    def sort_term(self, key: SortKey) -> Expression:
        return sql.ordered(self.value(key.node), key.descending, key.nulls_first)

    def alias(self) -> str:
        self._aliases += 1
        return f"t{self._aliases}"

    # --- relations -----------------------------------------------------------------------------------------------

    def frame(self, relation: Relation) -> Frame:
        handlers: dict[type, Callable[[Any], Frame]] = {
            Scan: self._scan,
            Project: self._project,
            Filter: self._filter,
            Sort: self._sort,
            Slice: self._slice,
            Distinct: self._distinct,
            Aggregate: self._aggregate,
            Explode: self._explode,
            Join: self._join,
            Zip: self._zip,
            Concat: self._concat,
        }
        return handlers[type(relation)](relation)

    def _scan(self, scan: Scan) -> Frame:
        alias = self.alias()
        key = Ref(KEY, UINT64, alias)
        columns: dict[str, Node] = {name: Ref(name, kind, alias) for name, kind in scan.table.columns}
        frame = Frame(sql.table(scan.table.name, alias), columns, [SortKey(key)], key)
        if scan.where is None:
            if scan.offset or scan.limit is not None:
                frame.cut(scan.offset, scan.limit)
            return frame
        if scan.start_key:
            frame.where.append(Call("ge", (key, Literal(scan.start_key, UINT64))))
        frame.where.append(substitute(scan.where, columns))
        frame.key = None
        if scan.offset or scan.limit is not None:
            frame.cut(scan.offset - scan.skipped, scan.limit)
        return frame

    def _project(self, relation: Project) -> Frame:
        frame = self.frame(relation.input)
        nodes = [node for _, node in relation.columns]
        frame = self._indexed(frame, nodes)
        frame, own = self._hoisted(frame, relation.columns)
        if any(has_window(node) for _, node in own) and (frame.is_cut or frame.group is not None):
            frame = self.wrap(frame)
        columns = self._inlined(frame, own)
        if any(buried_windows([node]) or is_large(node) for node in columns.values()):
            frame = self.wrap(frame)
            columns = self._inlined(frame, own)
        frame.columns = columns
        return frame

    def _hoisted(self, frame: Frame, columns: Columns) -> tuple[Frame, Columns]:
        """Compute windows that stand inside windows or aggregates first, in a subquery of their own."""
        while inner := buried_windows([node for _, node in columns]):
            if frame.is_cut or frame.group is not None or frame.has_window:
                frame = self.wrap(frame)
            names = {window: f"aai_w{len(frame.columns) + i}" for i, window in enumerate(inner)}
            added = self._inlined(frame, tuple((name, window) for window, name in names.items()))
            frame.columns.update(added)
            frame = self.wrap(frame)

            def known(node: Node, names: dict[Node, str] = names) -> Node | None:
                return Ref(names[node], node.type) if node in names else None

            columns = tuple((name, rewrite(node, known)) for name, node in columns)
        return frame, columns

    def _inlined(self, frame: Frame, columns: Columns) -> dict[str, Node]:
        index = frame.columns.get(INDEX)
        resolved = {name: _with_index(node, index) for name, node in columns}
        return {name: substitute(resolve(node, frame), frame.columns) for name, node in resolved.items()}

    def _indexed(self, frame: Frame, nodes: list[Node]) -> Frame:
        """Give the frame a column of row positions, if these nodes ask for one and the key does not tell it."""
        if not needs_index(nodes) or (frame.key is not None and frame.is_plain):
            return frame
        if frame.is_cut or frame.group is not None or frame.has_window:
            frame = self.wrap(frame)
        number = Over(Call("row_number"), order=tuple(frame.order))
        frame.columns[INDEX] = Call("cast", (Call("sub", (number, Literal(1, UINT8))),), (UINT64,))
        return self.wrap(frame)

    def _filter(self, relation: Filter) -> Frame:
        frame = self.frame(relation.input)
        frame = self._indexed(frame, [relation.predicate])
        if not frame.is_plain:
            frame = self.wrap(frame)
        predicate = self._inlined(frame, ((PREDICATE, relation.predicate),))[PREDICATE]
        if has_window(predicate) or is_large(predicate):
            frame.columns[PREDICATE] = predicate
            frame = self.wrap(frame)
            predicate = frame.columns.pop(PREDICATE)
        frame.columns.pop(INDEX, None)
        frame.where.append(predicate)
        frame.key = None
        return frame

    def _sort(self, relation: Sort) -> Frame:
        frame = self.frame(relation.input)
        if frame.is_cut:
            frame = self.wrap(frame)
        frame = self._indexed(frame, [key.node for key in relation.keys])
        names = tuple((str(i), key.node) for i, key in enumerate(relation.keys))
        nodes = self._inlined(frame, names)
        keys = [SortKey(nodes[str(i)], key.descending, key.nulls_first) for i, key in enumerate(relation.keys)]
        frame.columns.pop(INDEX, None)
        frame.order = [*keys, *frame.order]
        frame.key = None
        return frame

    def _slice(self, relation: Slice) -> Frame:
        frame = self.frame(relation.input)
        frame.cut(relation.offset, relation.limit)
        return frame

    def _aggregate(self, relation: Aggregate) -> Frame:
        frame = self.frame(relation.input)
        having = () if relation.having is None else ((PREDICATE, relation.having),)
        everything: Columns = (*relation.keys, *relation.values, *having)
        frame = self._indexed(frame, [node for _, node in everything])
        if not frame.is_plain:
            frame = self.wrap(frame)
        frame, everything = self._hoisted(frame, everything)
        nodes = self._inlined(frame, everything)
        if any(has_window(node) or is_large(node) for node in nodes.values()):
            frame = self.wrap(frame)
            nodes = self._inlined(frame, everything)
        if having:
            frame.having = nodes.pop(PREDICATE)
        keys = [nodes[name] for name, _ in relation.keys]
        frame.columns = nodes
        frame.group = keys
        frame.order = [SortKey(node) for node in keys if not isinstance(node, Literal)]
        frame.key = None
        return frame

    def _distinct(self, relation: Distinct) -> Frame:
        frame = self._indexed(self.frame(relation.input), [RowIndex()])
        if not frame.is_plain:
            frame = self.wrap(frame)
        index = frame.columns.pop(INDEX, None) or frame.known_index()
        kept = set(relation.subset)
        nodes = {n: node if n in kept else Call("first", (node, index)) for n, node in frame.columns.items()}
        frame.group = [nodes[name] for name in relation.subset]
        frame.columns = nodes
        frame.order = [SortKey(Call("min", (index,)))]
        frame.key = None
        return frame

    def _explode(self, relation: Explode) -> Frame:
        frame = self.frame(relation.input)
        if not frame.is_plain:
            frame = self.wrap(frame)
        first = frame.columns[relation.names[0]]
        frame.columns[ELEMENT] = Call("_positions", (first,), (relation.keep_empty,))
        frame.key = None
        frame = self.wrap(frame)
        place = frame.columns.pop(ELEMENT)
        for name in relation.names:
            frame.columns[name] = Call("_element", (frame.columns[name], place), (relation.keep_empty,))
        frame.order.append(SortKey(place))
        return frame

    def _join(self, relation: Join) -> Frame:
        sides = [self.frame(relation.left), self.frame(relation.right)]
        pairs = relation.on
        if relation.how == "asof" and not pairs:
            pairs = ((CONSTANT, CONSTANT),)  # ClickHouse wants something to be equal
            for side in sides:
                side.columns[CONSTANT] = Literal(0, UINT8)
        left, right = (self.wrap(side) for side in sides)
        conditions = [sql.binary("=", self.value(left.columns[a]), self.value(right.columns[b])) for a, b in pairs]
        if relation.asof is not None:
            a, operator, b = relation.asof
            conditions.append(sql.binary(operator, self.value(left.columns[a]), self.value(right.columns[b])))
        self.settings["join_algorithm"] = "default"  # beside such a join, rows are put side by side by hash too
        join = exp.Join(this=right.source, kind=JOIN_WORDS[relation.how])
        condition = sql.all_of(conditions)
        if condition is not None:
            join.set("on", condition)
        columns = {name: self._joined(relation, side, source, left, right) for name, side, source in relation.outputs}
        order = [*right.order, *left.order] if relation.how == "right" else [*left.order, *right.order]
        if relation.how in ("semi", "anti", "asof"):
            order = left.order
        return Frame(left.source, columns, order, joins=[join])

    def _joined(self, relation: Join, side: str, source: str, left: Frame, right: Frame) -> Node:
        if side == "l":
            return _retyped(left.columns[source], relation.kind_of(side, source))
        if side == "r":
            return _retyped(right.columns[source], relation.kind_of(side, source))
        other = right.columns[dict(relation.on)[source]]
        if relation.how == "right":
            return other
        if relation.how == "full":
            return Call("coalesce", (_retyped(left.columns[source]), _retyped(other)))
        return left.columns[source]

    def _zip(self, relation: Zip) -> Frame:
        """Row by row is a merge join on the dense key, which every table is sorted by: no hash table, no sort."""
        members = [self._member(member) for member in relation.members]
        first, *others = members
        joins: list[Expression] = []
        checks: list[Expression] = []
        columns: dict[str, Node] = {}
        where: list[Node] = []
        for i, member in enumerate(members):
            columns |= {f"{i}:{name}": node for name, node in member.columns.items() if name != INDEX}
            where += member.where
        for i, member in enumerate(others, start=1):
            on = sql.binary("=", *(self.value(cast("Ref", each.key)) for each in (first, member)))
            joins.append(exp.Join(this=member.source, kind="INNER", on=on))
            checks.append(self._same_length(relation.members[0], relation.members[i]))
        self.settings.setdefault("join_algorithm", "full_sorting_merge")
        # On a cluster equal keys lie on one node, but a member that was wrapped has keys of its own.
        if any(isinstance(member.source, exp.Subquery) for member in members):
            self.settings["distributed_product_mode"] = "global"
        self.settings.setdefault("distributed_product_mode", "local")
        return Frame(first.source, columns, [SortKey(first.key or Ref(KEY))], first.key, 0, joins, where, checks)

    def _member(self, relation: Relation) -> Frame:
        frame = self.frame(relation)
        if frame.key is not None and frame.is_plain and frame.key_start == 0 and not frame.joins:
            return frame
        frame = self._indexed(frame, [RowIndex()])
        if INDEX not in frame.columns:
            frame.columns[INDEX] = frame.known_index()
        frame = self.wrap(frame)
        key = cast("Ref", frame.columns.pop(INDEX))
        frame.key, frame.key_start, frame.order = key, 0, [SortKey(key)]
        return frame

    def _same_length(self, left: Relation, right: Relation) -> Expression:
        # A scalar subquery is computed before the query runs, even over empty tables: the check cannot be skipped.
        other = exp.Paren(this=self.count(right))
        differ = sql.binary("!=", sql.call("count"), other)
        check = sql.call("throwIf", differ, sql.string(LENGTH_MARK))
        counted = self.count(left)
        counted.set("expressions", [check])
        return sql.binary("=", exp.Paren(this=counted), sql.number(0))

    def count(self, relation: Relation) -> exp.Select:
        frame = self.frame(relation)
        if frame.is_cut or frame.group is not None:
            frame = self.wrap(frame)
        frame.columns, frame.order, frame.group = {"n": Call("len")}, [], []
        return self.select(frame, ordered=False)

    def _concat(self, relation: Concat) -> Frame:
        selects: list[exp.Select] = []
        for i, member in enumerate(relation.members):
            frame = self._indexed(self.frame(member), [RowIndex()])
            index = frame.columns.pop(INDEX, None) or frame.known_index()
            frame.columns["aai_o0"] = Literal(i, UINT64)
            frame.columns["aai_o1"] = index
            selects.append(self.select(frame, ordered=False))
        union: Expression = selects[0]
        for each in selects[1:]:
            union = exp.Union(this=union, expression=each, distinct=False)
        alias = self.alias()
        source = exp.Subquery(this=union, alias=exp.TableAlias(this=sql.name(alias)))
        columns: dict[str, Node] = {name: Ref(name, kind, alias) for name, kind in relation.schema.items()}
        return Frame(source, columns, [SortKey(Ref("aai_o0", UINT64, alias)), SortKey(Ref("aai_o1", UINT64, alias))])

    # --- text ----------------------------------------------------------------------------------------------------

    def wrap(self, frame: Frame) -> Frame:
        """The frame as a subquery of a new one; what orders its rows goes along under reserved names."""
        hidden = {f"aai_o{i}": key.node for i, key in enumerate(frame.order)}
        keyed = frame.key if not frame.is_cut and frame.group is None else None
        if keyed is not None:
            hidden = {KEY: keyed}
        alias = self.alias()
        inner = Frame(**{**frame.__dict__, "columns": {**frame.columns, **hidden}})
        tree = self.select(inner, ordered=frame.is_cut)
        source = exp.Subquery(this=tree, alias=exp.TableAlias(this=sql.name(alias)))
        columns: dict[str, Node] = {name: Ref(name, node.type, alias) for name, node in frame.columns.items()}
        if keyed is not None:
            key = Ref(KEY, UINT64, alias)
            return Frame(source, columns, [SortKey(key)], key, frame.key_start)
        order = [
            SortKey(Ref(f"aai_o{i}", key.node.type, alias), key.descending, key.nulls_first)
            for i, key in enumerate(frame.order)
        ]
        return Frame(source, columns, order)

    def select(
        self,
        frame: Frame,
        ordered: bool,
        present: Callable[[Expression, DataType], Expression] | None = None,
        extra: tuple[Expression, ...] = (),
    ) -> exp.Select:
        outputs = [sql.aliased(self._output(node, present), name) for name, node in frame.columns.items()]
        tree = exp.Select(expressions=[*extra, *outputs])
        tree.set("from_", exp.From(this=frame.source))
        if frame.joins:
            tree.set("joins", frame.joins)
        condition = sql.all_of([*(self.value(node) for node in frame.where), *frame.checks])
        if condition is not None:
            tree.set("where", exp.Where(this=condition))
        if frame.group:
            tree.set("group", exp.Group(expressions=[self.value(node) for node in frame.group]))
        if frame.having is not None:
            tree.set("having", exp.Having(this=self.value(frame.having)))
        if frame.order and (ordered or frame.is_cut):
            tree.set("order", exp.Order(expressions=[self.sort_term(key) for key in frame.order]))
        if frame.limit is not None:
            tree.set("limit", exp.Limit(expression=sql.number(frame.limit)))
        if frame.offset:
            tree.set("offset", exp.Offset(expression=sql.number(frame.offset)))
        return tree

    def _output(self, node: Node, present: Callable[[Expression, DataType], Expression] | None) -> Expression:
        tree = self.value(node)
        if node.type.is_bool and not isinstance(node, Ref):
            tree = sql.cast(tree, node.type)  # ClickHouse's own comparisons give UInt8
        return tree if present is None else present(tree, node.type)


def split(node: Literal) -> list[Literal]:
    """A value too large for one parameter as several: the server takes 131,072 bytes in each."""
    value: Any = node.value
    if isinstance(value, str | bytes) and len(value) > TEXT_PIECE:
        return [Literal(value[at : at + TEXT_PIECE], node.kind) for at in range(0, len(value), TEXT_PIECE)]
    if node.kind.name == "Array" and len(value) > LIST_PIECE:
        values = list(value)
        longest = max(len(str(each)) for each in values)
        step = max(1, min(LIST_PIECE, TEXT_PIECE // (longest + 3)))
        return [Literal(values[at : at + step], node.kind) for at in range(0, len(values), step)]
    return [node]


def _with_index(node: Node, index: Node | None) -> Node:
    if index is None:
        return node
    return rewrite(node, lambda each: index if isinstance(each, RowIndex) else None)


def _retyped(node: Node, kind: DataType | None = None) -> Node:
    """A joined column: where it may have no partner, it may be NULL."""
    column = cast("Ref", node)
    return Ref(column.name, kind or column.type.as_nullable(), column.alias)
