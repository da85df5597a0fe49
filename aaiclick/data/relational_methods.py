"""Table methods of Object: select, filter, sort, group, join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from aaiclick.data.argument_checks import check_methods
from aaiclick.data.compile.join_columns import (
    check_columns_exist,
    hidden_name,
)
from aaiclick.data.compile.relation_nodes import (
    Aggregate,
    Distinct,
    Filter,
    Project,
    Slice,
    Sort,
)
from aaiclick.data.compile.row_alignment import as_columns, identity_mapping
from aaiclick.data.errors import DataTypeError, check_integer
from aaiclick.data.expressions.column import Column, column_node, sort_directions
from aaiclick.data.expressions.literals import literal_type
from aaiclick.data.expressions.nodes import (
    FunctionCall,
    Literal,
    Ref,
    RowIndex,
    SortKey,
    bind_columns,
    broadcast_aggregates,
    has_aggregate,
    is_aggregated,
)
from aaiclick.data.expressions.selectors import check_mapping, flatten_lists
from aaiclick.data.expressions.where_parser import parse_where
from aaiclick.data.grouping import GroupBy
from aaiclick.data.runtime.tables import check_column_names
from aaiclick.data.table_base import TableBase, is_object
from aaiclick.data.time_groups import TimeGroupBy
from aaiclick.data.types import INT64, UINT64

if TYPE_CHECKING:
    from aaiclick.data.object import Object

JOIN_TYPES = ("inner", "left", "right", "full", "cross", "semi", "anti")
ASOF_OPERATORS = {"backward": ">=", "forward": "<=", "backward_strict": ">", "forward_strict": "<"}


@check_methods
class TableMethods(TableBase):
    """Table methods of Object."""

    # --- columns -------------------------------------------------------------------------------------------------

    def select(self, *columns: object, **named: object) -> Object:
        """Select columns: names, expressions, or `name=expression`. If all are aggregates, the result is one row."""
        base, _, chosen = self._resolve_columns(columns, named)
        nodes = dict(chosen)
        if not nodes:
            raise DataTypeError("The result would have no columns.", remedy="Select at least one.")
        if all(is_aggregated(node) for node in nodes.values()) and any(has_aggregate(n) for n in nodes.values()):
            return self._derive_object(Aggregate(base, (), tuple(nodes.items())))
        return self._derive_object(
            Project(base, tuple((name, broadcast_aggregates(node)) for name, node in nodes.items()))
        )

    def with_columns(self, *columns: object, **named: object) -> Object:
        """Add columns, or replace columns of the same name."""
        base, own, chosen = self._resolve_columns(columns, named)
        nodes = {**own, **{name: broadcast_aggregates(node) for name, node in chosen}}
        return self._derive_object(Project(base, tuple(nodes.items())))

    def rename(self, names: Mapping[str, str] | str) -> Object:
        """Rename columns: `{"old": "new"}`, or a string for a single column."""
        schema = self.relation.schema
        mapping = {next(iter(schema)): names} if isinstance(names, str) else check_mapping(names, "rename")
        check_columns_exist(mapping, schema)
        columns = tuple((mapping.get(name, name), Ref(name, dtype)) for name, dtype in schema.items())
        check_column_names(name for name, _ in columns)
        return self._derive_object(Project(self.relation, columns), self.shape)

    def drop(self, *names: str | Column | Sequence[str]) -> Object:
        """Remove columns."""
        schema, dropped = self.relation.schema, self._expand_names(names, "drop")
        columns = tuple((name, Ref(name, dtype)) for name, dtype in schema.items() if name not in dropped)
        if not columns:
            raise DataTypeError("The result would have no columns.", remedy="Keep at least one.")
        return self._derive_object(Project(self.relation, columns))

    def cast_columns(self, kinds: Mapping[str, str | type]) -> Object:
        """Cast columns to other types."""
        check_columns_exist(check_mapping(kinds, "cast_columns"), self.relation.schema)
        return self.with_columns(**{name: Column(Ref(name)).cast(dtype) for name, dtype in kinds.items()})

    def with_row_index(self, name: str = "index") -> Object:
        """Add a column with the position of each row."""
        check_column_names([name])
        return self.with_columns(Column(FunctionCall("_position", (RowIndex(),)), name))

    # --- rows ----------------------------------------------------------------------------------------------------

    def filter(self, *conditions: object) -> Object:
        """Keep rows where all conditions hold: expressions, masks (`obj["x"] > 1`), or text as in a View's `where`."""
        result: Any = self
        for condition in flatten_lists(conditions):
            result = result._filter_by(condition)
        return result

    def where(self, *conditions: object) -> Object:
        """Alias of `filter`."""
        return self.filter(*conditions)

    def _filter_by(self, condition: object) -> Object:
        if isinstance(condition, str):
            return self._derive_object(Filter(self.relation, parse_where(condition, self.relation.schema)), self.shape)
        if isinstance(condition, bool):
            raise DataTypeError(
                f"The condition is {condition}.", remedy='Compare a column with a value: col("x") > 1, not "x" > 1.'
            )
        base, own, nodes = self._resolve_columns((condition,), {})
        filtered = base
        for _, node in nodes:
            predicate = broadcast_aggregates(node)
            if not predicate.type.is_bool:
                raise DataTypeError(
                    f"A condition must be a boolean, not {predicate.type}.", remedy="Compare it with a value."
                )
            filtered = Filter(filtered, predicate)
        if base is self.relation or base == self.relation:
            return self._derive_object(filtered, self.shape)
        return self._derive_object(Project(filtered, as_columns(own)), self.shape)

    def sort(
        self,
        *by: str | Column | Sequence[str | Column],
        descending: bool | Sequence[bool] = False,
        nulls_first: bool = False,
    ) -> Object:
        """Sort rows (stable); NULLs come last."""
        columns = flatten_lists(by) or list(self.relation.schema)
        keys = [part for _, part in self._expand_sort_keys(columns)]
        nodes = [broadcast_aggregates(bind_columns(column_node(key), self.relation.schema)) for key in keys]
        flags = sort_directions(descending, len(keys))
        terms = tuple(SortKey(node, flag, bool(nulls_first)) for node, flag in zip(nodes, flags, strict=True))
        return self._derive_object(Sort(self.relation, terms), self.shape)

    def _expand_sort_keys(self, columns: Sequence[object]) -> list[tuple[str, object]]:
        expressions = [column for column in columns if not is_object(column)]
        if len(expressions) != len(columns):
            raise DataTypeError(
                "sort takes names and col(…) expressions, not Objects.", remedy='For example sort("x").'
            )
        for column in expressions:
            column_node(column)
        return self._expand_columns(expressions)

    def reverse(self) -> Object:
        """Return the rows in the opposite order."""
        return self._derive_object(Sort(self.relation, (SortKey(RowIndex(), True),)), self.shape)

    def slice(self, offset: int, length: int | None = None) -> Object:
        """Return `length` rows from `offset` on; a negative offset counts from the end."""
        offset = check_integer(offset, "The offset")
        if length is not None and check_integer(length, "The length") < 0:
            raise DataTypeError(f"The length must not be negative, and is {length}.")
        if offset >= 0:
            return self._derive_object(Slice(self.relation, offset, length), self.shape)
        rows_after = 0 if length is None else max(0, -offset - length)
        return self._derive_object(Slice(self.relation, rows_after, -offset - rows_after, from_end=True), self.shape)

    def head(self, n: int = 5) -> Object:
        """Return the first rows; all but the last ones if `n` is negative."""
        if check_integer(n, "The number of rows") < 0:
            return self._derive_object(Slice(self.relation, -n, None, from_end=True), self.shape)
        return self.slice(0, n)

    def tail(self, n: int = 5) -> Object:
        """Return the last rows; all but the first ones if `n` is negative."""
        if check_integer(n, "The number of rows") < 0:
            return self.slice(-n)
        return self._derive_object(Slice(self.relation, 0, n, from_end=True), self.shape)

    def limit(self, n: int) -> Object:
        """Alias of `head`."""
        return self.head(n)

    def sample(self, n: int | None = None, *, fraction: float | None = None, seed: int = 0) -> Object:
        """Sample rows by a hash of their position; the same seed selects the same rows."""
        if (n is None) == (fraction is None):
            raise DataTypeError("Pass either n or fraction.")
        if n is not None and check_integer(n, "A sample's size") < 0:
            raise DataTypeError(f"The size of a sample must not be negative, and is {n}.")
        mixed = FunctionCall(
            "hash",
            (
                FunctionCall(
                    "add",
                    (FunctionCall("mul", (RowIndex(), Literal(2654435761, UINT64))), Literal(seed, literal_type(seed))),
                ),
            ),
        )
        if fraction is not None:
            if not 0 <= fraction <= 1:
                raise DataTypeError(f"A fraction must lie between 0 and 1, and is {fraction}.")
            bound = round(fraction * (1 << 64)) - 1
            if bound < 0:
                return self.slice(0, 0)
            return self._derive_object(
                Filter(self.relation, FunctionCall("le", (mixed, Literal(bound, UINT64)))), self.shape
            )
        position, order = (hidden_name(label, self.relation.schema) for label in ("position", "hash"))
        numbered = Project(
            self.relation, (*as_columns(identity_mapping(self.relation)), (position, RowIndex()), (order, mixed))
        )
        chosen = Slice(Sort(numbered, (SortKey(Ref(order, UINT64)),)), 0, n)
        back = Sort(chosen, (SortKey(Ref(position, UINT64)),))
        return self._derive_object(Project(back, as_columns(identity_mapping(self.relation))), self.shape)

    def distinct(self, *subset: str | Column | Sequence[str]) -> Object:
        """Keep the first row of each combination of values (of these columns)."""
        names = self._expand_names(subset, "distinct") or tuple(self.relation.schema)
        return self._derive_object(Distinct(self.relation, names), self.shape)

    def unique(self, *subset: str | Column | Sequence[str]) -> Object:
        """Alias of `distinct`."""
        return self.distinct(*subset)

    def drop_nulls(self, *subset: str | Column | Sequence[str]) -> Object:
        """Drop rows with a NULL (in these columns)."""
        chosen = self._expand_names(subset, "drop_nulls")
        names = [n for n in chosen or self.relation.schema if self.relation.schema[n].nullable]
        return self.filter(*(Column(Ref(name)).is_not_null() for name in names))

    # --- groups --------------------------------------------------------------------------------------------------

    def group_by(self, *keys: object, **named: object) -> GroupBy:
        """Group rows by keys, to be aggregated with `.agg(…)`. Groups are ordered by their keys."""
        if not keys and not named:
            raise DataTypeError("group_by needs at least one key.", remedy='For example group_by("k").')
        for name, key in named.items():
            if isinstance(key, str):
                raise DataTypeError(
                    f"{name}={key!r:.60} is a text that all rows share, not a column.",
                    remedy=f'Use group_by("{key:.60}"), or {name}=col("{key:.60}").',
                )
        return GroupBy(self, keys, named)

    def group_by_time(
        self,
        time: str,
        every: str | timedelta,
        *by: str | Column | Sequence[str | Column],
        fill: bool = True,
        start: date | None = None,
        end: date | None = None,
    ) -> TimeGroupBy:
        """Group rows by intervals of a date or datetime, and by further keys: `group_by_time("t", "1h").agg(…)`.

        With `fill`, intervals without rows between the first and the last of each combination of keys (or between
        `start` and `end`) are rows too, with the aggregates of no rows: 0 for sums and counts, NULL for others. Rows
        without a time are left out.
        """
        return TimeGroupBy(self, time, every, by, fill=fill, start=start, end=end)

    def value_counts(self, name: str = "count") -> Object:
        """Count how often each value occurs, most frequent first."""
        check_column_names((*self.relation.schema, name))
        keys = tuple((n, Ref(n, dtype)) for n, dtype in self.relation.schema.items())
        counted = Aggregate(self.relation, keys, ((name, FunctionCall("len")),))
        return self._derive_object(Sort(counted, (SortKey(Ref(name, INT64), True),)))
