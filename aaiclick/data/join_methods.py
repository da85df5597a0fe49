"""Join methods of Object: joins on equal keys, on the nearest key, and on conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aaiclick.data.argument_checks import check_methods
from aaiclick.data.compile.join_columns import check_join_keys, hidden_name, join_outputs, join_pairs
from aaiclick.data.compile.relation_nodes import Columns, Filter, Join, LimitBy, Project, Relation
from aaiclick.data.compile.row_alignment import as_columns, identity_mapping
from aaiclick.data.errors import DataTypeError
from aaiclick.data.expressions.column import Column, as_node
from aaiclick.data.expressions.nodes import ExpressionNode, FunctionCall, Ref, bind_columns, has_aggregate, has_window
from aaiclick.data.expressions.selectors import check_names, flatten_lists
from aaiclick.data.runtime.tables import check_column_names
from aaiclick.data.table_base import TableBase, check_object
from aaiclick.data.types import DataType

if TYPE_CHECKING:
    from aaiclick.data.object import Object

JOIN_TYPES = ("inner", "left", "right", "full", "cross", "semi", "anti")
ASOF_OPERATORS = {"backward": ">=", "forward": "<=", "backward_strict": ">", "forward_strict": "<"}
JoinKeys = str | Column | Sequence[str | Column] | None


@check_methods
class JoinMethods(TableBase):
    """Joins with another Object; the rows are in the order of this one."""

    def join(
        self,
        other: Object,
        on: JoinKeys = None,
        how: str = "inner",
        *,
        left_on: JoinKeys = None,
        right_on: JoinKeys = None,
        suffix: str = "_right",
    ) -> Object:
        """Join on equal keys, columns or expressions. `how`: inner, left, right, full, cross, semi, anti."""
        if how not in JOIN_TYPES:
            raise DataTypeError(
                f"Unknown join type {how!r:.60}.",
                remedy=f"Use one of {', '.join(JOIN_TYPES)}, or the methods join_asof and join_where.",
            )
        right = check_object(other, "join").relation
        pairs = join_pairs(on, left_on, right_on)
        if (how == "cross") == bool(pairs):
            raise DataTypeError(
                "A cross join takes no keys." if pairs else f"A join of type {how} needs at least one key.",
                remedy="Leave out on=, or choose another how=." if pairs else 'For example on="k"; or how="cross".',
            )
        if all(isinstance(key, str) for pair in pairs for key in pair):
            check_join_keys(pairs, self.relation, right)
            left = _allow_null_structures(self.relation, how in ("right", "full"), {key for key, _ in pairs})
            right = _allow_null_structures(right, how in ("left", "full"), {key for _, key in pairs})
            outputs = join_outputs(left, right, pairs, how, suffix)
            return self._derive_object(Join(left, right, how, pairs, outputs))
        return self._join_expressions(right, pairs, how, suffix)

    def _join_expressions(
        self, right: Relation, pairs: Sequence[tuple[object, object]], how: str, suffix: str
    ) -> Object:
        """Join on computed keys, which are no columns of the result."""
        optional = (how in ("right", "full"), how in ("left", "full"))
        left, right = (
            _allow_null_structures(relation, may_be_missing, set())
            for relation, may_be_missing in zip((self.relation, right), optional, strict=True)
        )
        sides = [_with_keys(relation, [pair[i] for pair in pairs]) for i, relation in enumerate((left, right))]
        names = [f"aai_k{i}" for i in range(len(pairs))]
        keys = tuple((name, name) for name in names)
        check_join_keys(keys, *sides)
        outputs = join_outputs(left, right, (), how, suffix)
        return self._derive_object(Join(sides[0], sides[1], how, keys, outputs))

    def join_where(self, other: Object, *conditions: Column, suffix: str = "_right") -> Object:
        """Join each row with the rows of `other` for which all conditions hold, such as `col("x") < col("y")`.

        Columns of `other` with a name that is used here already get the suffix, also in the conditions. Equal columns
        of both sides are joined by a hash table; other conditions are tested for each pair of rows.
        """
        right = check_object(other, "join_where").relation
        nodes = [as_node(condition) for condition in flatten_lists(conditions)]
        if not nodes:
            raise DataTypeError("join_where needs a condition.", remedy='For example col("start") <= col("t").')
        outputs = join_outputs(self.relation, right, (), "inner", suffix)
        sources = {name: (side, source) for name, side, source in outputs}
        schema = {name: (self.relation if side == "l" else right).schema[source] for name, side, source in outputs}
        parts = [part for node in nodes for part in _split_conjunction(bind_columns(node, schema))]
        for part in parts:
            if not part.type.is_bool or has_aggregate(part) or has_window(part):
                raise DataTypeError(f"A condition of a join is a comparison of columns, not {part.type}.")
        pairs = [pair for part in parts if (pair := _equal_columns(part, sources)) is not None]
        rest = [part for part in parts if _equal_columns(part, sources) is None or _compares_floats(part)]
        joined: Relation = Join(self.relation, right, "inner" if pairs else "cross", tuple(pairs), outputs)
        for part in rest:
            joined = Filter(joined, part)
        return self._derive_object(joined)

    def join_asof(
        self,
        other: Object,
        on: str | tuple[str, str],
        by: str | Sequence[str] | None = None,
        *,
        strategy: str = "backward",
        tolerance: float | timedelta | None = None,
        suffix: str = "_right",
    ) -> Object:
        """Join each row with the nearest row of `other` by `on`, among rows with equal `by`.

        `backward` takes the last row that is not later, `forward` the first that is not earlier, `nearest` the one with
        the smaller difference (of two equal ones the later). Beyond `tolerance` there is no match.
        """
        if strategy not in (*ASOF_OPERATORS, "nearest"):
            raise DataTypeError(
                f"Unknown asof strategy {strategy!r:.60}.", remedy=f"Use one of {', '.join(ASOF_OPERATORS)}, nearest."
            )
        right = check_object(other, "join_asof").relation
        left_on, right_on = _check_asof_key(on)
        pairs = join_pairs(by, None, None)
        check_join_keys((*pairs, (left_on, right_on)), self.relation, right)
        _check_exact_order(self.relation.schema[left_on], right.schema[right_on])
        right = _allow_null_structures(right, True, {key for _, key in pairs})
        keys = tuple((name, Ref(name, right.schema[name])) for name in (*(b for _, b in pairs), right_on))
        outputs = join_outputs(self.relation, right, pairs, "asof", suffix)
        if strategy != "nearest" and tolerance is None:
            comparison = (left_on, ASOF_OPERATORS[strategy], right_on)
            matches = _first_of_equal_keys(right, keys, strategy)
            return self._derive_object(Join(self.relation, matches, "asof", pairs, outputs, comparison))
        strategies = ("backward", "forward") if strategy == "nearest" else (strategy,)
        joined: Relation = self.relation
        columns: list[dict[str, str]] = []
        for number, name in enumerate(strategies):
            matches = _first_of_equal_keys(right, keys, name)
            joined, names = _add_matches(joined, matches, pairs, (left_on, ASOF_OPERATORS[name], right_on), number)
            columns.append(names)
        nodes = _choose_matches(joined, outputs, columns, (left_on, right_on), tolerance)
        check_column_names(name for name, _ in nodes)
        return self._derive_object(Project(joined, nodes))


def _allow_null_structures(relation: Relation, may_be_missing: bool, keys: set[str]) -> Relation:
    """Make lists, structs and maps nullable, since ClickHouse fills those of unmatched rows with empty ones."""
    schema = relation.schema
    names = {name for name, dtype in schema.items() if dtype.is_structure and not dtype.nullable and name not in keys}
    if not may_be_missing or not names:
        return relation
    columns: list[tuple[str, ExpressionNode]] = []
    for name, dtype in schema.items():
        ref = Ref(name, dtype)
        columns.append((name, FunctionCall("cast", (ref,), (replace(dtype, nullable=True),)) if name in names else ref))
    return Project(relation, tuple(columns))


def _with_keys(relation: Relation, keys: Sequence[object]) -> Relation:
    columns: list[tuple[str, ExpressionNode]] = list(as_columns(identity_mapping(relation)))
    for i, key in enumerate(keys):
        node = Ref(key) if isinstance(key, str) else as_node(key)
        columns.append((f"aai_k{i}", bind_columns(node, relation.schema)))
    return Project(relation, tuple(columns))


def _compares_floats(node: ExpressionNode) -> bool:
    """Whether a comparison must be repeated after the join, for which all NaNs are one value."""
    return any(child.type.is_float for child in node.children)


def _split_conjunction(node: ExpressionNode) -> list[ExpressionNode]:
    if isinstance(node, FunctionCall) and node.function == "and":
        return [part for arg in node.args for part in _split_conjunction(arg)]
    return [node]


def _equal_columns(node: ExpressionNode, sources: dict[str, tuple[str, str]]) -> tuple[str, str] | None:
    """Return the columns of both sides of `left == right`; None for any other condition."""
    if not isinstance(node, FunctionCall) or node.function != "eq":
        return None
    if not all(isinstance(arg, Ref) for arg in node.args):
        return None
    (side, left), (other_side, right) = (sources[arg.name] for arg in node.args if isinstance(arg, Ref))
    if {side, other_side} != {"l", "r"}:
        return None
    return (left, right) if side == "l" else (right, left)


# --- nearest rows ------------------------------------------------------------------------------------------------


def _check_asof_key(on: object) -> tuple[str, str]:
    names = check_names([on], "join_asof")
    if len(names) not in (1, 2):
        raise DataTypeError(f"on= is {on!r:.60}.", remedy='Use a name, or a pair of names: ("time", "at").')
    return names[0], names[-1]


def _check_exact_order(left: DataType, right: DataType) -> None:
    """Raise for types that have no distance, and for a float with an integer or Decimal that has no exact float."""
    if not all(dtype.is_numeric or dtype.is_temporal or dtype.is_duration for dtype in (left, right)):
        raise DataTypeError(
            f"join_asof takes numbers, dates, datetimes or durations, not {left} and {right}.",
            remedy="Cast the columns, or use join(…).",
        )
    other = left if right.is_float else right
    is_inexact = other.is_decimal or (other.is_integer and other.bits >= 64)
    if left.is_float != right.is_float and is_inexact:
        raise DataTypeError(f"join_asof cannot compare {left} with {right}.", remedy="Cast one of both columns.")


def _first_of_equal_keys(right: Relation, keys: Columns, strategy: str) -> Relation:
    """Keep one row of those with equal keys: the last one backward, the first one forward. ClickHouse takes any."""
    return LimitBy(right, keys, 1, from_end=strategy.startswith("backward"))


def _add_matches(
    left: Relation, right: Relation, pairs: Any, comparison: tuple[str, str, str], number: int
) -> tuple[Relation, dict[str, str]]:
    """Join the matches of one direction as columns with reserved names; return the name of each column of `right`."""
    keys = {b for _, b in pairs}
    columns = [name for name in right.schema if name not in keys]
    names = {name: hidden_name(f"match{number}_{i}", left.schema) for i, name in enumerate(columns)}
    outputs = [(name, "k" if name in {a for a, _ in pairs} else "l", name) for name in left.schema]
    outputs += [(output, "r", name) for name, output in names.items()]
    return Join(left, right, "asof", pairs, tuple(outputs), comparison), names


def _choose_matches(
    joined: Relation,
    outputs: Sequence[tuple[str, str, str]],
    columns: Sequence[dict[str, str]],
    keys: tuple[str, str],
    tolerance: object,
) -> tuple[tuple[str, ExpressionNode], ...]:
    """Return the output columns: of the nearer match, NULL beyond the tolerance."""

    def column_ref(name: str) -> ExpressionNode:
        return Ref(name, joined.schema[name])

    match_keys = [column_ref(names[keys[1]]) for names in columns]
    distances = [
        FunctionCall("abs", (FunctionCall("sub", (column_ref(keys[0]), match_key)),)) for match_key in match_keys
    ]
    is_match: list[ExpressionNode] = [FunctionCall("is_not_null", (match_key,)) for match_key in match_keys]
    if tolerance is not None:
        limit = as_node(tolerance)
        is_match = [
            FunctionCall("and", (f, FunctionCall("le", (d, limit)))) for f, d in zip(is_match, distances, strict=True)
        ]
    nodes: list[tuple[str, ExpressionNode]] = []
    for name, side, source in outputs:
        if side != "r":
            nodes.append((name, column_ref(source)))
            continue
        values = [column_ref(names[source]) for names in columns]
        choice: ExpressionNode = FunctionCall("_null_where", (values[0], FunctionCall("not", (is_match[0],))))
        if len(values) > 1:
            farther = FunctionCall("lt", (distances[0], distances[1]))
            backward = FunctionCall("and", (is_match[0], FunctionCall("coalesce", (farther, as_node(True)))))
            forward = FunctionCall("_null_where", (values[1], FunctionCall("not", (is_match[1],))))
            choice = FunctionCall("if_else", (backward, values[0], forward))
        _ = choice.type
        nodes.append((name, choice))
    return tuple(nodes)
