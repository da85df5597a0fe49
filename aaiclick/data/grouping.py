"""Groups: rows with equal keys, waiting to be summed up."""

# A group is a part of its Object, and uses its protected heart.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aaiclick.data.column import Column, name_of
from aaiclick.data.errors import DataTypeError
from aaiclick.data.nodes import Call, Ref, bind, is_aggregated, substitute
from aaiclick.data.relations import Aggregate

if TYPE_CHECKING:
    from aaiclick.data.object import Object
    from aaiclick.data.relational import Relational


class GroupBy:
    """Rows in groups, waiting for `agg`."""

    def __init__(self, owner: Relational, keys: Sequence[Any], named: Mapping[str, Any]) -> None:
        self._owner = owner
        self._keys = list(keys)
        self._named = dict(named)
        self._having: list[Column] = []

    def having(self, condition: Column) -> GroupBy:
        """Only groups for which the condition, over aggregates, holds."""
        result = GroupBy(self._owner, self._keys, self._named)
        result._having = [*self._having, condition]
        return result

    def agg(self, *values: Any, **named: Any) -> Object:
        """One row per group: `agg(total=col("v").sum())`."""
        columns = [*self._keys, *values]
        base, own, chosen = self._owner._resolved(columns, {**self._named, **named})
        keys = [*chosen[: len(self._keys)], *chosen[len(columns) : len(columns) + len(self._named)]]
        results = [pair for pair in chosen if pair not in keys]
        wrong = next((name for name, node in results if not is_aggregated(node)), None)
        if wrong is not None:
            raise DataTypeError(
                f"{wrong!r} has a value per row, not per group.",
                remedy=f'Aggregate it, for example col("{wrong}").sum().',
            )
        conditions = [substitute(bind(each.node, self._owner.relation.schema), own) for each in self._having]
        having = None
        for condition in conditions:
            having = condition if having is None else Call("and", (having, condition))
        return self._owner._derived(Aggregate(base, tuple(keys), tuple(results), having))

    def len(self, name: str = "count") -> Object:
        """Number of rows in each group."""
        return self.agg(Column(Call("len"), name))

    def _all(self, function: str, *, numeric: bool) -> Object:
        keys = {name_of(key) for key in self._keys} | set(self._named)
        schema = self._owner.relation.schema
        names = [n for n, kind in schema.items() if n not in keys and (not numeric or kind.is_numeric or kind.is_bool)]
        params = (1,) if function in ("std", "var") else ()
        return self.agg(*(Column(Call(function, (Ref(name),), params), name) for name in names))

    def sum(self) -> Object:
        return self._all("sum", numeric=True)

    def mean(self) -> Object:
        return self._all("mean", numeric=True)

    def min(self) -> Object:
        return self._all("min", numeric=False)

    def max(self) -> Object:
        return self._all("max", numeric=False)

    def count(self) -> Object:
        """Values that are not NULL, in each column."""
        return self._all("count", numeric=False)
