"""GroupBy: rows grouped by keys, before aggregation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aaiclick.data.compile.relation_nodes import Aggregate
from aaiclick.data.errors import DataTypeError
from aaiclick.data.expressions.column import Column, output_name
from aaiclick.data.expressions.nodes import FunctionCall, Ref, bind_columns, is_aggregated, substitute_columns

if TYPE_CHECKING:
    from aaiclick.data.object import Object
    from aaiclick.data.table_methods import TableMethods


class GroupBy:
    """Rows of an Object grouped by keys; `agg` aggregates them."""

    def __init__(self, owner: TableMethods, keys: Sequence[object], named: Mapping[str, object]) -> None:
        self._owner = owner
        self._keys = list(keys)
        self._named = dict(named)
        self._having: list[Column] = []

    def having(self, condition: Column) -> GroupBy:
        """Keep groups that satisfy a condition over aggregates (SQL HAVING)."""
        result = GroupBy(self._owner, self._keys, self._named)
        result._having = [*self._having, condition]
        return result

    def agg(self, *values: object, **named: object) -> Object:
        """Aggregate to one row per group: `agg(total=col("v").sum())`."""
        columns = [*self._keys, *values]
        base, own, chosen = self._owner._resolve_columns(columns, {**self._named, **named})  # pyright: ignore[reportPrivateUsage]
        keys = [*chosen[: len(self._keys)], *chosen[len(columns) : len(columns) + len(self._named)]]
        results = [pair for pair in chosen if pair not in keys]
        unaggregated = next((name for name, node in results if not is_aggregated(node)), None)
        if unaggregated is not None:
            raise DataTypeError(
                f"{unaggregated!r} has a value per row, not per group.",
                remedy=f'Aggregate it, for example col("{unaggregated}").sum().',
            )
        conditions = [
            substitute_columns(bind_columns(condition.node, self._owner.relation.schema), own)
            for condition in self._having
        ]
        having = None
        for condition in conditions:
            having = condition if having is None else FunctionCall("and", (having, condition))
        relation = Aggregate(base, tuple(keys), tuple(results), having)
        return self._owner._derive_object(relation)  # pyright: ignore[reportPrivateUsage]

    def len(self, name: str = "count") -> Object:
        """Count the rows of each group."""
        return self.agg(Column(FunctionCall("len"), name))

    def _aggregate_all(self, function: str, *, numeric: bool) -> Object:
        keys = {output_name(key) for key in self._keys} | set(self._named)
        schema = self._owner.relation.schema
        names = [
            n for n, dtype in schema.items() if n not in keys and (not numeric or dtype.is_numeric or dtype.is_bool)
        ]
        params = (1,) if function in ("std", "var") else ()
        return self.agg(*(Column(FunctionCall(function, (Ref(name),), params), name) for name in names))

    def sum(self) -> Object:
        return self._aggregate_all("sum", numeric=True)

    def mean(self) -> Object:
        return self._aggregate_all("mean", numeric=True)

    def min(self) -> Object:
        return self._aggregate_all("min", numeric=False)

    def max(self) -> Object:
        return self._aggregate_all("max", numeric=False)

    def count(self) -> Object:
        """Count the values that are not NULL, per column."""
        return self._aggregate_all("count", numeric=False)
