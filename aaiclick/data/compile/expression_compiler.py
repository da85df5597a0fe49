"""Compiler of expressions to ClickHouse SQL, the base of the compiler of relations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from aaiclick.data.compile import sql
from aaiclick.data.compile.pruning import prune_columns
from aaiclick.data.compile.select_builder import RESERVED_PREFIX
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.arithmetic import numeric_type
from aaiclick.data.expressions.functions.nullable_structures import build_tree
from aaiclick.data.expressions.literals import bind_value
from aaiclick.data.expressions.nodes import (
    Element,
    ExpressionNode,
    FunctionCall,
    ListLambda,
    Literal,
    Membership,
    Over,
    Ref,
    Scalar,
    SortKey,
)
from aaiclick.data.types import INT64, UINT64, supertype

if TYPE_CHECKING:
    from aaiclick.data.compile.relation_nodes import Relation
    from aaiclick.data.compile.select_builder import SelectBuilder

SHOWS_BOOLEANS = frozenset(
    {"to_json", "concat", "array", "collect", "first", "last", "hash", "list_contains", "min", "max"}
)
TEXT_PIECE = 15_000
LIST_PIECE = 4_000


@dataclass
class ValueCompiler(ABC):
    """Compiles the expressions of one query."""

    parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    _bound_literals: dict[Literal, str] = field(default_factory=dict[Literal, str])
    _alias_count: int = 0

    @abstractmethod
    def compile_relation(self, relation: Relation) -> SelectBuilder: ...

    @abstractmethod
    def build_select(self, builder: SelectBuilder, ordered: bool) -> exp.Select: ...

    def compile_value(self, node: ExpressionNode) -> Expression:
        if isinstance(node, Ref):
            return sql.column(node.alias, node.name)
        if isinstance(node, Literal):
            return self._compile_literal(node)
        if isinstance(node, FunctionCall):
            return self._compile_call(node, lambda tree: tree)
        if isinstance(node, Over):
            return self._compile_window(node)
        if isinstance(node, Scalar):
            return exp.Paren(this=self.build_select(self.compile_relation(prune_columns(node.relation)), ordered=False))
        if isinstance(node, Membership):
            return self._compile_membership(node)
        if isinstance(node, Element):
            return exp.Column(this=sql.identifier(node.label))
        if isinstance(node, ListLambda):
            return self._compile_lambda(node)
        raise TypeError(node)

    def _compile_membership(self, node: Membership) -> Expression:
        builder = self.compile_relation(prune_columns(node.relation))
        ((name, column),) = builder.columns.items()
        value, builder.columns[name] = _as_common_type(*comparable_keys(node.value, column))
        self.settings["distributed_product_mode"] = "global"
        tree = self.compile_value(value)
        rows = exp.Subquery(this=self.build_select(builder, ordered=False))
        is_member = exp.In(this=sql.parenthesize(tree), query=rows)
        if not node.type.nullable:
            return sql.call("ifNull", is_member, sql.number(0)) if value.type.nullable else is_member
        is_null = self.compile_value(FunctionCall("is_null", (node.value,)))
        return sql.call("if", is_null, sql.null(), sql.call("ifNull", is_member, sql.number(0)))

    def _compile_lambda(self, node: ListLambda) -> Expression:
        body = self.compile_value(node.body)
        if node.function == "list_filter":
            function = "arrayFilter"
            body = sql.call("ifNull", body, sql.number(0)) if node.body.type.nullable else body
        else:
            function = "arrayMap"
            body = sql.cast(body, node.body.type)
        change = exp.Lambda(this=body, expressions=[sql.identifier(node.label)])
        values = self.compile_value(node.values)
        if not node.values.type.is_nullable_structure:
            return sql.call(function, change, values)
        changed = sql.call("array", sql.call(function, change, sql.call("arrayElement", values, sql.number(1))))
        return sql.call("if", sql.call("empty", values.copy()), sql.call("array"), changed)

    def _compile_literal(self, node: Literal) -> Expression:
        if node.value is None:
            return sql.null()
        if node.dtype.name == "Array" and node.dtype.element.is_unknown and not node.value:
            return sql.call("array")
        pieces = split_literal(node)
        if len(pieces) > 1:
            joined = "arrayConcat" if node.dtype.name == "Array" else "concat"
            return sql.call(joined, *(self._bind_parameter(piece) for piece in pieces))
        return self._bind_parameter(node)

    def _bind_parameter(self, node: Literal) -> Expression:
        if node not in self._bound_literals:
            parameter = f"p{len(self._bound_literals)}"
            self._bound_literals[node] = parameter
            self.parameters[parameter] = bind_value(node.value, node.dtype)
        return sql.placeholder(self._bound_literals[node], node.dtype)

    def _compile_call(self, node: FunctionCall, over: Callable[[Expression], Expression]) -> Expression:
        args = [self._compile_argument(arg, node.function) for arg in node.args]
        return build_tree(node.function, args, tuple(arg.type for arg in node.args), node.params, over)

    def _compile_argument(self, node: ExpressionNode, function: str) -> Expression:
        """Compile an argument; a computed boolean is UInt8 in ClickHouse, which some functions would show as 1."""
        tree = self.compile_value(node)
        if function in SHOWS_BOOLEANS and node.type.is_bool and not isinstance(node, Ref | Literal):
            return sql.cast(tree, node.type)
        return tree

    def _compile_window(self, node: Over) -> Expression:
        # ClickHouse rewrites count(x) to x.null, and does not find that column in a window.
        self.settings["optimize_functions_to_subcolumns"] = 0
        partition = [self.compile_value(canonical_key(key)) for key in node.partition]
        order = self.compile_sort_keys(node.order)
        frame = node.frame or (
            ("UNBOUNDED PRECEDING", "UNBOUNDED FOLLOWING") if order and node.call.function == "shift" else None
        )

        def add_window(tree: Expression) -> Expression:
            return sql.window(tree, [p.copy() for p in partition], [o.copy() for o in order], frame, node.unit)

        return self._compile_call(node.call, add_window)

    def compile_sort_keys(self, keys: Sequence[SortKey]) -> list[Expression]:
        """Compile ORDER BY terms. NaN is greater than every number; ClickHouse sorts it to the side of the NULLs."""
        terms: list[Expression] = []
        for key in keys:
            tree = self.compile_value(key.node)
            if key.node.type.is_nullable_structure:  # stored in an array, which is empty for NULL: sort NULL last
                is_null = sql.call("empty" if key.descending == key.nulls_first else "notEmpty", tree.copy())
                tree = sql.call("tuple", is_null, tree)
            if not key.node.type.is_float or key.descending == key.nulls_first:
                terms.append(sql.order_term(tree, key.descending, key.nulls_first))
                continue
            if key.node.type.nullable:
                terms.append(sql.order_term(sql.call("isNull", tree.copy()), key.nulls_first, False))
            terms.append(sql.order_term(tree, key.descending, not key.nulls_first))
        return terms

    def next_alias(self) -> str:
        """Return an alias that no column has: of a column `t`, `t.null` would be a part, not the column `null`."""
        self._alias_count += 1
        return f"{RESERVED_PREFIX}{self._alias_count}"


def canonical_key(node: ExpressionNode) -> ExpressionNode:
    """Return a key that equals another if their values do; ClickHouse compares the bits of floats."""
    return FunctionCall("_canonical", (node,)) if node.type.is_float and not isinstance(node, Literal) else node


def nan_as_null(node: ExpressionNode) -> ExpressionNode:
    """Return the key of an ASOF join: ClickHouse's binary search needs keys with an order."""
    return FunctionCall("_null_where", (node, FunctionCall("is_nan", (node,)))) if node.type.is_float else node


def comparable_keys(left: ExpressionNode, right: ExpressionNode) -> tuple[ExpressionNode, ExpressionNode]:
    """Return join keys of types that ClickHouse can compare; a value without an equal of the other type is NULL."""
    if left.type.is_nullable_structure or right.type.is_nullable_structure:
        return FunctionCall("_structure_key", (left,)), FunctionCall("_structure_key", (right,))
    types = [node.type.as_required() for node in (left, right)]
    for source, target in (types, types[::-1]):
        is_exact = target.is_integer or target.is_decimal
        if (source.is_float and is_exact) or (source == UINT64 and target.is_integer and target.is_signed):
            exact = INT64 if target.is_integer and target.bits <= 64 and target != UINT64 else target
            converted = [
                FunctionCall("try_cast", (node,), (exact,)) if node.type.as_required() == source else node
                for node in (left, right)
            ]
            return converted[0], converted[1]
    return canonical_key(left), canonical_key(right)


def _as_common_type(left: ExpressionNode, right: ExpressionNode) -> tuple[ExpressionNode, ExpressionNode]:
    """Cast the value and the column of an IN to one type: ClickHouse casts the value, and truncates it."""
    types = [numeric_type(node.type) for node in (left, right)]
    if types[0] == types[1] and left.type.is_bool == right.type.is_bool:
        return left, right
    common = supertype(*types)
    if common is None:
        return left, right
    casts = [FunctionCall("cast", (node,), (common.as_nullable(node.type.nullable),)) for node in (left, right)]
    return casts[0], casts[1]


def split_literal(node: Literal) -> list[Literal]:
    """Split a literal that exceeds the server's limit of 131,072 bytes per parameter."""
    value: Any = node.value
    if isinstance(value, str | bytes) and len(value) > TEXT_PIECE:
        return [Literal(value[at : at + TEXT_PIECE], node.dtype) for at in range(0, len(value), TEXT_PIECE)]
    if node.dtype.name == "Array" and len(value) > LIST_PIECE:
        values = list(value)
        longest = max(len(str(element)) for element in values)
        step = max(1, min(LIST_PIECE, TEXT_PIECE // (longest + 3)))
        return [Literal(values[at : at + step], node.dtype) for at in range(0, len(values), step)]
    return [node]
