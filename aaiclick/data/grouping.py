"""GroupBy: rows grouped by keys, before aggregation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aaiclick.data.argument_checks import check_methods
from aaiclick.data.compile.relation_nodes import Aggregate, LimitBy, Project, Relation
from aaiclick.data.compile.row_alignment import as_columns
from aaiclick.data.errors import DataTypeError, check_integer
from aaiclick.data.expressions.column import Column
from aaiclick.data.expressions.nodes import (
    ExpressionNode,
    FunctionCall,
    Ref,
    bind_columns,
    is_aggregated,
    substitute_columns,
)
from aaiclick.data.method_hints import GROUP_HINTS, unknown_method

if TYPE_CHECKING:
    from aaiclick.data.object import Object
    from aaiclick.data.relational_methods import TableMethods


Nodes = list[tuple[str, ExpressionNode]]
ResolvedGroups = tuple[Relation, dict[str, ExpressionNode], Nodes, Nodes]


@check_methods
class GroupBy:
    """Rows of an Object grouped by keys; `agg` aggregates them.

    ```python
    await numbers.group_by(big=col("x") > 1).agg(n=length()).sort("n").data()  # {'big': [False, True], 'n': [1, 2]}
    ```
    """

    def __init__(self, owner: TableMethods, keys: Sequence[object], named: Mapping[str, object]) -> None:
        self._owner = owner
        self._keys = list(keys)
        self._named = dict(named)
        self._having: list[Column] = []

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise unknown_method("Groups", name, GROUP_HINTS, names=dir(type(self)))

    def having(self, condition: Column) -> GroupBy:
        """Keep groups that satisfy a condition over aggregates (SQL HAVING)."""
        result = GroupBy(self._owner, self._keys, self._named)
        result._having = [*self._having, condition]
        return result

    def agg(self, *values: object, **named: object) -> Object:
        """Aggregate to one row per group: `agg(total=col("v").sum())`."""
        for name, value in named.items():
            if isinstance(value, str):
                raise DataTypeError(
                    f"{name}={value!r:.60} is a text, not an aggregate.", remedy=f'For example {name}=col("x").sum().'
                )
        base, own, keys, results = self._resolve_groups(values, named)
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
        return self._finish(Aggregate(base, tuple(keys), tuple(results), having))

    def _finish(self, relation: Aggregate) -> Object:
        return self._owner._derive_object(relation)  # pyright: ignore[reportPrivateUsage]

    def _resolve_groups(self, values: Sequence[object], named: Mapping[str, object]) -> ResolvedGroups:
        """Return the relation, its columns, the keys and the results."""
        owner = self._owner
        keys = [*owner._expand_columns(self._keys), *owner._expand_named(self._named)]  # pyright: ignore[reportPrivateUsage]
        results = [*owner._expand_columns(values), *owner._expand_named(named)]  # pyright: ignore[reportPrivateUsage]
        base, own, chosen = owner._resolve_arguments([*keys, *results])  # pyright: ignore[reportPrivateUsage]
        return base, own, chosen[: len(keys)], chosen[len(keys) :]

    def head(self, n: int = 5) -> Object:
        """Return the first rows of each group; the rows keep their order, so sort before: top-k per group."""
        return self._limit_rows(n, from_end=False)

    def tail(self, n: int = 5) -> Object:
        """Return the last rows of each group; the rows keep their order."""
        return self._limit_rows(n, from_end=True)

    def _limit_rows(self, n: int, *, from_end: bool) -> Object:
        if check_integer(n, "The number of rows") < 0:
            raise DataTypeError(f"The number of rows must not be negative, and is {n}.")
        if self._having:
            raise DataTypeError("having(…) applies to aggregates, not to rows.", remedy="Filter the rows first.")
        base, own, keys, _ = self._resolve_groups((), {})
        rows = LimitBy(base, tuple(keys), n, from_end)
        result = rows if base == self._owner.relation else Project(rows, as_columns(own))
        return self._owner._derive_object(result)  # pyright: ignore[reportPrivateUsage]

    def len(self, name: str = "count") -> Object:
        """Count the rows of each group."""
        return self.agg(Column(FunctionCall("len"), name))

    def _aggregate_all(self, function: str, *, numeric: bool) -> Object:
        expanded = self._owner._expand_columns(self._keys)  # pyright: ignore[reportPrivateUsage]
        keys = {name for name, _ in expanded} | set(self._named)
        schema = self._owner.relation.schema
        names = [n for n, dtype in schema.items() if n not in keys and (not numeric or dtype.is_summable)]
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
