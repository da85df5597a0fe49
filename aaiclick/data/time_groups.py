"""TimeGroupBy: rows grouped by intervals of time, with rows for intervals without any."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aaiclick.data.argument_checks import check_methods
from aaiclick.data.compile.join_columns import hidden_name
from aaiclick.data.compile.relation_nodes import Aggregate, Explode, Filter, Join, Project, Relation
from aaiclick.data.errors import DataTypeError
from aaiclick.data.expressions.column import Column
from aaiclick.data.expressions.intervals import parse_interval
from aaiclick.data.expressions.literals import literal_type
from aaiclick.data.expressions.nodes import ExpressionNode, FunctionCall, Literal, Ref, Scalar
from aaiclick.data.grouping import GroupBy
from aaiclick.data.types import BOOL

if TYPE_CHECKING:
    from aaiclick.data.object import Object
    from aaiclick.data.table_base import TableBase


@check_methods
class TimeGroupBy(GroupBy):
    """Rows of an Object grouped by intervals of a time column; `agg` aggregates them."""

    def __init__(
        self,
        owner: TableBase,
        time: str,
        every: str | timedelta,
        by: Sequence[object],
        *,
        fill: bool,
        start: date | None,
        end: date | None,
    ) -> None:
        (name,) = owner._expand_names([time], "group_by_time")  # pyright: ignore[reportPrivateUsage]
        if not owner.relation.schema[name].is_temporal:
            raise DataTypeError(
                f"Column {name!r} is {owner.relation.schema[name]}, not a date or datetime.", remedy="Cast it first."
            )
        self._interval = parse_interval(every)
        self._time, self._fill = name, bool(fill)
        self._is_date = owner.relation.schema[name].is_date
        bounds = [self._check_bound(bound, label) for bound, label in ((start, "start"), (end, "end"))]
        present: Any = owner._derive_object(Filter(owner.relation, _within(name, owner.relation, bounds)))  # pyright: ignore[reportPrivateUsage]
        self._bounds = [
            None if bound is None else self._truncate(Literal(bound, literal_type(bound))) for bound in bounds
        ]
        bucket = Column(self._truncate(Ref(name)), name)
        super().__init__(present, [*by, bucket], {})

    def _check_bound(self, bound: object, label: str) -> date | None:
        if bound is not None and not isinstance(bound, date | datetime):
            raise DataTypeError(f"{label}= is {bound!r:.60}.", remedy="Use a date or a datetime.")
        if bound is None or isinstance(bound, datetime) or self._is_date:
            return bound
        return datetime(bound.year, bound.month, bound.day)  # noqa: DTZ001

    def _truncate(self, node: ExpressionNode) -> ExpressionNode:
        return FunctionCall("truncate", (node,), (self._interval,))

    def having(self, condition: Column) -> GroupBy:  # noqa: ARG002
        raise DataTypeError("group_by_time has no having(…).", remedy="Filter the result of agg(…).")

    def _finish(self, relation: Aggregate) -> Object:
        if not self._fill:
            return self._owner._derive_object(relation)  # pyright: ignore[reportPrivateUsage]
        *keys, (time, bucket) = relation.keys
        present = hidden_name("present", relation.schema)
        spine = self._all_intervals(relation.input, tuple(keys), time, bucket)
        marked = Aggregate(relation.input, relation.keys, (*relation.values, (present, _constant_true(bucket))))
        pairs = tuple((name, name) for name, _ in relation.keys)
        sides = [(name, "k", name) for name, _ in relation.keys]
        sides += [(name, "r", name) for name in marked.schema if name not in dict(relation.keys)]
        joined = Join(spine, marked, "left", pairs, tuple(sides), equal_nulls=True)
        is_missing = FunctionCall("is_null", (Ref(present, BOOL.as_nullable()),))
        columns: list[tuple[str, ExpressionNode]] = [(n, Ref(n, joined.schema[n])) for n, _ in relation.keys]
        nothing = Filter(relation.input, Literal(False, BOOL))
        for name, node in relation.values:
            value = Ref(name, joined.schema[name])
            empty = Scalar(Aggregate(nothing, (), ((name, node),)))
            filled = value if node.type.is_structure else FunctionCall("if_else", (is_missing, empty, value))
            columns.append((name, filled if node.type.nullable or node.type.is_structure else _require(filled)))
        return self._owner._derive_object(Project(joined, tuple(columns)))  # pyright: ignore[reportPrivateUsage]

    def _all_intervals(self, rows: Relation, keys: Any, time: str, bucket: ExpressionNode) -> Relation:
        """Return a row for each interval between the first and the last of each combination of keys."""
        first, last = (
            FunctionCall(function, (bucket,)) if bound is None else _per_group(bound)
            for function, bound in zip(("min", "max"), self._bounds, strict=True)
        )
        dtype = bucket.type.as_required()
        ends = [FunctionCall("cast", (node,), (dtype.as_nullable(),)) for node in (first, last)]
        names = [hidden_name(label, dict(keys)) for label in ("first", "last")]
        spans = Aggregate(rows, keys, tuple(zip(names, ends, strict=True)))
        refs = [Ref(name, dtype.as_nullable()) for name in names]
        series = FunctionCall("_time_range", tuple(refs), (self._interval, dtype))
        columns = (*((name, Ref(name, node.type)) for name, node in keys), (time, series))
        return Explode(Project(spans, columns), (time,), False)


def _within(name: str, relation: Relation, bounds: Sequence[object]) -> ExpressionNode:
    ref = Ref(name, relation.schema[name])
    condition: ExpressionNode = FunctionCall("is_not_null", (ref,))
    for bound, function in zip(bounds, ("ge", "le"), strict=True):
        if bound is not None:
            test = FunctionCall(function, (ref, Literal(bound, literal_type(bound))))
            condition = FunctionCall("and", (condition, test))
    _ = condition.type
    return condition


def _per_group(constant: ExpressionNode) -> ExpressionNode:
    """Return a constant as an aggregate, so that there is one row per group, or one if there are no rows."""
    is_true = FunctionCall("ge", (FunctionCall("len"), Literal(0, literal_type(0))))
    return FunctionCall("if_else", (is_true, constant, constant))


def _constant_true(bucket: ExpressionNode) -> ExpressionNode:
    return FunctionCall("any", (FunctionCall("is_not_null", (bucket,)),))


def _require(node: ExpressionNode) -> ExpressionNode:
    return FunctionCall("_required", (node,))
