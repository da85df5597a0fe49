"""Table methods of Object: select, filter, sort, group, join."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aaiclick.data.compile.join_columns import (
    cast_to_types,
    check_columns_exist,
    check_join_keys,
    column_of,
    common_type,
    join_outputs,
    join_pairs,
)
from aaiclick.data.compile.relation_nodes import (
    Aggregate,
    Concat,
    Distinct,
    Explode,
    Filter,
    Join,
    Project,
    Relation,
    Slice,
    Sort,
)
from aaiclick.data.compile.row_alignment import align_rows, as_columns, identity_mapping
from aaiclick.data.errors import DataTypeError, check_integer
from aaiclick.data.expressions.column import Column, column_node, output_name
from aaiclick.data.expressions.literals import literal_type
from aaiclick.data.expressions.nodes import (
    ExpressionNode,
    FunctionCall,
    Literal,
    Ref,
    RowIndex,
    Scalar,
    SortKey,
    bind_columns,
    broadcast_aggregates,
    has_aggregate,
    is_aggregated,
    substitute_columns,
)
from aaiclick.data.expressions.where_parser import parse_where
from aaiclick.data.grouping import GroupBy
from aaiclick.data.runtime.tables import Shape, check_column_names
from aaiclick.data.types import INT64, UINT64

if TYPE_CHECKING:
    from aaiclick.data.object import Object

JOIN_TYPES = ("inner", "left", "right", "full", "cross", "semi", "anti")
ASOF_OPERATORS = {"backward": ">=", "forward": "<=", "backward_strict": ">", "forward_strict": "<"}


class TableMethods(ABC):
    """Table methods of Object."""

    @property
    @abstractmethod
    def relation(self) -> Relation: ...

    @property
    @abstractmethod
    def shape(self) -> Shape: ...

    @abstractmethod
    def _derive_object(self, relation: Relation, shape: Shape = "table") -> Any: ...

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
        mapping = {next(iter(schema)): names} if isinstance(names, str) else dict(names)
        check_columns_exist(mapping, schema)
        columns = tuple((mapping.get(name, name), Ref(name, dtype)) for name, dtype in schema.items())
        check_column_names(name for name, _ in columns)
        return self._derive_object(Project(self.relation, columns), self.shape)

    def drop(self, *names: str) -> Object:
        """Remove columns."""
        schema = self.relation.schema
        check_columns_exist(names, schema)
        columns = tuple((name, Ref(name, dtype)) for name, dtype in schema.items() if name not in names)
        if not columns:
            raise DataTypeError("The result would have no columns.", remedy="Keep at least one.")
        return self._derive_object(Project(self.relation, columns))

    def cast_columns(self, kinds: Mapping[str, str | type]) -> Object:
        """Cast columns to other types."""
        check_columns_exist(kinds, self.relation.schema)
        return self.with_columns(**{name: Column(Ref(name)).cast(dtype) for name, dtype in kinds.items()})

    def with_row_index(self, name: str = "index") -> Object:
        """Add a column with the position of each row."""
        return self.with_columns(Column(FunctionCall("_position", (RowIndex(),)), name))

    # --- rows ----------------------------------------------------------------------------------------------------

    def filter(self, *conditions: object) -> Object:
        """Keep rows where all conditions hold: expressions, masks (`obj["x"] > 1`), or text as in a View's `where`."""
        result: Any = self
        for condition in conditions:
            result = result._filter_by(condition)
        return result

    def where(self, *conditions: object) -> Object:
        """Alias of `filter`."""
        return self.filter(*conditions)

    def _filter_by(self, condition: object) -> Object:
        if isinstance(condition, str):
            return self._derive_object(Filter(self.relation, parse_where(condition, self.relation.schema)), self.shape)
        base, own, ((_, node),) = self._resolve_columns((condition,), {})
        node = broadcast_aggregates(node)
        if not node.type.is_bool:
            raise DataTypeError(f"A condition must be a boolean, not {node.type}.", remedy="Compare it with a value.")
        filtered = Filter(base, node)
        if base is self.relation or base == self.relation:
            return self._derive_object(filtered, self.shape)
        return self._derive_object(Project(filtered, as_columns(own)), self.shape)

    def sort(self, *by: str | Column, descending: bool | Sequence[bool] = False, nulls_first: bool = False) -> Object:
        """Sort rows (stable); NULLs come last."""
        keys: Sequence[str | Column] = by or list(self.relation.schema)
        flags = [descending] * len(keys) if isinstance(descending, bool) else list(descending)
        if len(flags) != len(keys):
            raise DataTypeError(
                f"There are {len(keys)} sort keys and {len(flags)} values of descending.",
                remedy="Pass one for each key.",
            )
        nodes = [broadcast_aggregates(bind_columns(column_node(key), self.relation.schema)) for key in keys]
        terms = tuple(SortKey(node, flag, nulls_first) for node, flag in zip(nodes, flags, strict=True))
        return self._derive_object(Sort(self.relation, terms), self.shape)

    def slice(self, offset: int, length: int | None = None) -> Object:
        """Return `length` rows from `offset` on."""
        if offset < 0 or (length is not None and length < 0):
            raise DataTypeError("Offset and length must not be negative.")
        return self._derive_object(
            Slice(self.relation, int(offset), None if length is None else int(length)), self.shape
        )

    def head(self, n: int = 5) -> Object:
        """Return the first rows."""
        return self.slice(0, n)

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
        numbered = Project(
            self.relation, (*as_columns(identity_mapping(self.relation)), ("aai_s", RowIndex()), ("aai_h", mixed))
        )
        chosen = Slice(Sort(numbered, (SortKey(Ref("aai_h", UINT64)),)), 0, n)
        back = Sort(chosen, (SortKey(Ref("aai_s", UINT64)),))
        return self._derive_object(Project(back, as_columns(identity_mapping(self.relation))), self.shape)

    def distinct(self, *subset: str) -> Object:
        """Keep the first row of each combination of values (of these columns)."""
        check_columns_exist(subset, self.relation.schema)
        return self._derive_object(Distinct(self.relation, subset or tuple(self.relation.schema)), self.shape)

    def unique(self, *subset: str) -> Object:
        """Alias of `distinct`."""
        return self.distinct(*subset)

    def drop_nulls(self, *subset: str) -> Object:
        """Drop rows with a NULL (in these columns)."""
        check_columns_exist(subset, self.relation.schema)
        names = [n for n in subset or self.relation.schema if self.relation.schema[n].nullable]
        return self.filter(*(Column(Ref(name)).is_not_null() for name in names))

    def explode(self, *names: str, keep_empty: bool = False) -> Object:
        """Return a row for each array element; rows with empty arrays are dropped unless `keep_empty`."""
        schema = self.relation.schema
        chosen = names or tuple(schema) if len(schema) == 1 else names
        check_columns_exist(chosen, schema)
        non_array = next((name for name in chosen if schema[name].name != "Array"), None)
        if non_array is not None or not chosen:
            raise DataTypeError(
                f"Column {non_array!r} is {schema[non_array] if non_array else 'missing'}, not an array."
            )
        return self._derive_object(Explode(self.relation, tuple(chosen), keep_empty), self.shape)

    # --- groups --------------------------------------------------------------------------------------------------

    def group_by(self, *keys: object, **named: object) -> GroupBy:
        """Group rows by keys, to be aggregated with `.agg(…)`. Groups are ordered by their keys."""
        if not keys and not named:
            raise DataTypeError("group_by needs at least one key.", remedy='For example group_by("k").')
        return GroupBy(self, keys, named)

    def value_counts(self, name: str = "count") -> Object:
        """Count how often each value occurs, most frequent first."""
        keys = tuple((n, Ref(n, dtype)) for n, dtype in self.relation.schema.items())
        counted = Aggregate(self.relation, keys, ((name, FunctionCall("len")),))
        return self._derive_object(Sort(counted, (SortKey(Ref(name, INT64), True),)))

    # --- several Objects -----------------------------------------------------------------------------------------

    def join(
        self,
        other: Object,
        on: str | Sequence[str] | None = None,
        how: str = "inner",
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        suffix: str = "_right",
    ) -> Object:
        """Join two Objects on equal keys. `how`: inner, left, right, full, cross, semi, anti."""
        if how not in JOIN_TYPES:
            raise DataTypeError(
                f"Unknown join type {how!r}.", remedy=f"Use one of {', '.join(JOIN_TYPES)}, or the method join_asof."
            )
        pairs = join_pairs(on, left_on, right_on)
        if (how == "cross") == bool(pairs):
            raise DataTypeError("A cross join takes no keys; every other join needs at least one.")
        check_join_keys(pairs, self.relation, other.relation)
        outputs = join_outputs(self.relation, other.relation, pairs, how, suffix)
        return self._derive_object(Join(self.relation, other.relation, how, pairs, outputs))

    def join_asof(
        self,
        other: Object,
        on: str | tuple[str, str],
        by: str | Sequence[str] | None = None,
        *,
        strategy: str = "backward",
        suffix: str = "_right",
    ) -> Object:
        """Join each row with the nearest row of `other` by `on`, among rows with equal `by`.

        `backward` takes the last row that is not later.
        """
        if strategy not in ASOF_OPERATORS:
            raise DataTypeError(
                f"Unknown asof strategy {strategy!r}.", remedy=f"Use one of {', '.join(ASOF_OPERATORS)}."
            )
        left_on, right_on = (on, on) if isinstance(on, str) else on
        pairs = join_pairs(by, None, None)
        check_join_keys((*pairs, (left_on, right_on)), self.relation, other.relation)
        outputs = join_outputs(self.relation, other.relation, pairs, "asof", suffix)
        join = Join(
            self.relation, other.relation, "asof", pairs, outputs, (left_on, ASOF_OPERATORS[strategy], right_on)
        )
        return self._derive_object(join)

    def concat(self, *objects: Object) -> Object:
        """Append the rows of other Objects; columns of different types get their common supertype."""
        relations = [self.relation, *(obj.relation for obj in objects)]
        names = list(self.relation.schema)
        for relation in relations[1:]:
            if len(names) == 1 and len(relation.schema) == 1:
                continue
            if sorted(relation.schema) != sorted(names):
                raise DataTypeError(
                    f"The columns differ: {names} and {list(relation.schema)}.", remedy="Select or rename them first."
                )
        dtypes = {name: common_type(name, [column_of(r, name).type for r in relations]) for name in names}
        members = tuple(cast_to_types(relation, dtypes) for relation in relations)
        return self._derive_object(Concat(members), "table" if self.shape in ("table", "record") else "column")

    # --- helpers -------------------------------------------------------------------------------------------------

    def _resolve_columns(
        self, columns: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[Relation, dict[str, ExpressionNode], list[tuple[str, ExpressionNode]]]:
        """Return a relation for this Object and all arguments, its own columns, and the arguments as nodes over it."""
        arguments = [(output_name(column), column) for column in columns] + list(named.items())
        check_column_names(name for name, _ in arguments)
        objects = [value for _, value in arguments if _is_object(value) and value.shape != "scalar"]
        base, (own, *maps) = align_rows([self.relation, *(obj.relation for obj in objects)])
        lowered = {id(obj): mapping for obj, mapping in zip(objects, maps, strict=True)}
        return (
            base,
            own,
            [
                (name, self._argument_node(value, own, lowered, positional=i < len(columns)))
                for i, (name, value) in enumerate(arguments)
            ],
        )

    def _argument_node(
        self,
        argument: object,
        own: dict[str, ExpressionNode],
        lowered: dict[int, dict[str, ExpressionNode]],
        positional: bool,
    ) -> ExpressionNode:
        value: Any = Column(Ref(argument)) if isinstance(argument, str) and positional else argument
        if isinstance(value, Column):
            return substitute_columns(bind_columns(value.node, self.relation.schema), own)
        if _is_object(value):
            if value.shape in ("table", "record"):
                raise DataTypeError(
                    f"A table of columns {value.columns} was passed where one column is needed.",
                    remedy='Select one: obj["x"].',
                )
            return (
                next(iter(lowered[id(value)].values())) if id(value) in lowered else self._scalar_node(value.relation)
            )
        return Literal(value, literal_type(value))

    def _scalar_node(self, relation: Relation) -> ExpressionNode:
        """Return an aggregate of this Object's rows as an expression, any other scalar as a subquery."""
        if isinstance(relation, Aggregate) and not relation.keys:
            base, (own, other_columns) = align_rows([self.relation, relation.input])
            if base == self.relation:
                ((_, node),) = relation.values
                return substitute_columns(node, other_columns)
            del own
        return Scalar(relation)


def _is_object(value: object) -> bool:
    return isinstance(value, TableMethods)
