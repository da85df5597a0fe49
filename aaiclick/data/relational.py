"""What is done with whole tables: selecting, filtering, sorting, grouping, joining."""

# These methods are parts of Object, kept here so that each file has one subject.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aaiclick.data.align import align, as_columns, identity
from aaiclick.data.column import Column, column_node, name_of
from aaiclick.data.errors import DataTypeError, whole
from aaiclick.data.grouping import GroupBy
from aaiclick.data.literals import literal_type
from aaiclick.data.matching import check_pairs, column_of, common_type, join_outputs, join_pairs, known, shaped
from aaiclick.data.nodes import (
    Call,
    Literal,
    Node,
    Ref,
    RowIndex,
    Scalar,
    SortKey,
    bind,
    broadcast,
    has_aggregate,
    is_aggregated,
    substitute,
)
from aaiclick.data.relations import Aggregate, Concat, Distinct, Explode, Filter, Join, Project, Relation, Slice, Sort
from aaiclick.data.tables import Shape, check_column_names
from aaiclick.data.types import UINT64
from aaiclick.data.where import parse_where

if TYPE_CHECKING:
    from aaiclick.data.object import Object

JOINS = ("inner", "left", "right", "full", "cross", "semi", "anti")
ASOF = {"backward": ">=", "forward": "<=", "backward_strict": ">", "forward_strict": "<"}


class Relational(ABC):
    """Relational methods of an Object."""

    @property
    @abstractmethod
    def relation(self) -> Relation: ...

    @property
    @abstractmethod
    def shape(self) -> Shape: ...

    @abstractmethod
    def _derived(self, relation: Relation, shape: Shape = "table") -> Any: ...

    # --- columns -------------------------------------------------------------------------------------------------

    def select(self, *columns: Any, **named: Any) -> Object:
        """Only these columns: names, expressions, or `name=expression`. Aggregates alone give one row."""
        base, _, chosen = self._resolved(columns, named)
        nodes = dict(chosen)
        if not nodes:
            raise DataTypeError("No column would be left.", remedy="Name at least one.")
        if all(is_aggregated(node) for node in nodes.values()) and any(has_aggregate(n) for n in nodes.values()):
            return self._derived(Aggregate(base, (), tuple(nodes.items())))
        return self._derived(Project(base, tuple((name, broadcast(node)) for name, node in nodes.items())))

    def with_columns(self, *columns: Any, **named: Any) -> Object:
        """All columns, and these besides (or instead, under the same name)."""
        base, own, chosen = self._resolved(columns, named)
        nodes = {**own, **{name: broadcast(node) for name, node in chosen}}
        return self._derived(Project(base, tuple(nodes.items())))

    def rename(self, names: Mapping[str, str] | str) -> Object:
        """Columns under other names: `{"old": "new"}`; one string for a single column."""
        schema = self.relation.schema
        mapping = {next(iter(schema)): names} if isinstance(names, str) else dict(names)
        known(mapping, schema)
        columns = tuple((mapping.get(name, name), Ref(name, kind)) for name, kind in schema.items())
        check_column_names(name for name, _ in columns)
        return self._derived(Project(self.relation, columns), self.shape)

    def drop(self, *names: str) -> Object:
        """Without these columns."""
        schema = self.relation.schema
        known(names, schema)
        columns = tuple((name, Ref(name, kind)) for name, kind in schema.items() if name not in names)
        if not columns:
            raise DataTypeError("No column would be left.", remedy="Keep at least one.")
        return self._derived(Project(self.relation, columns))

    def cast_columns(self, kinds: Mapping[str, str | type]) -> Object:
        """Some columns as other types."""
        known(kinds, self.relation.schema)
        return self.with_columns(**{name: Column(Ref(name)).cast(kind) for name, kind in kinds.items()})

    def with_row_index(self, name: str = "index") -> Object:
        """A column with the position of each row."""
        return self.with_columns(Column(RowIndex(), name))

    # --- rows ----------------------------------------------------------------------------------------------------

    def filter(self, *conditions: Any) -> Object:
        """Rows where all conditions hold: expressions, masks (`obj["x"] > 1`), or text as in a View's where."""
        result: Any = self
        for condition in conditions:
            result = result._filtered(condition)
        return result

    def where(self, *conditions: Any) -> Object:
        """The same as `filter`."""
        return self.filter(*conditions)

    def _filtered(self, condition: Any) -> Object:
        if isinstance(condition, str):
            return self._derived(Filter(self.relation, parse_where(condition, self.relation.schema)), self.shape)
        base, own, ((_, node),) = self._resolved((condition,), {})
        node = broadcast(node)
        if not node.type.is_bool:
            raise DataTypeError(f"A condition is a boolean, not {node.type}.", remedy="Compare it with something.")
        filtered = Filter(base, node)
        if base is self.relation or base == self.relation:
            return self._derived(filtered, self.shape)
        return self._derived(Project(filtered, as_columns(own)), self.shape)

    def sort(self, *by: str | Column, descending: bool | Sequence[bool] = False, nulls_first: bool = False) -> Object:
        """Rows in another order; rows that compare equal keep theirs. NULLs come last."""
        keys: Sequence[str | Column] = by or list(self.relation.schema)
        flags = [descending] * len(keys) if isinstance(descending, bool) else list(descending)
        if len(flags) != len(keys):
            raise DataTypeError(
                f"There are {len(keys)} sort keys and {len(flags)} directions.", remedy="Give one for each."
            )
        nodes = [broadcast(bind(column_node(key), self.relation.schema)) for key in keys]
        terms = tuple(SortKey(node, flag, nulls_first) for node, flag in zip(nodes, flags, strict=True))
        return self._derived(Sort(self.relation, terms), self.shape)

    def slice(self, offset: int, length: int | None = None) -> Object:
        """`length` rows from `offset` on."""
        if offset < 0 or (length is not None and length < 0):
            raise DataTypeError("Offset and length are not negative.")
        return self._derived(Slice(self.relation, int(offset), None if length is None else int(length)), self.shape)

    def head(self, n: int = 5) -> Object:
        """The first rows."""
        return self.slice(0, n)

    def limit(self, n: int) -> Object:
        """The same as `head`."""
        return self.head(n)

    def sample(self, n: int | None = None, *, fraction: float | None = None, seed: int = 0) -> Object:
        """Some rows, chosen by a hash of their position: the same ones for the same seed."""
        if (n is None) == (fraction is None):
            raise DataTypeError("Give either a number of rows or a fraction.")
        if n is not None and whole(n, "A sample's size") < 0:
            raise DataTypeError(f"A sample has at least no rows, not {n}.")
        mixed = Call(
            "hash",
            (Call("add", (Call("mul", (RowIndex(), Literal(2654435761, UINT64))), Literal(seed, literal_type(seed)))),),
        )
        if fraction is not None:
            if not 0 <= fraction <= 1:
                raise DataTypeError(f"A fraction lies between 0 and 1, not at {fraction}.")
            bound = round(fraction * (1 << 64)) - 1
            if bound < 0:
                return self.slice(0, 0)
            return self._derived(Filter(self.relation, Call("le", (mixed, Literal(bound, UINT64)))), self.shape)
        numbered = Project(
            self.relation, (*as_columns(identity(self.relation)), ("aai_s", RowIndex()), ("aai_h", mixed))
        )
        chosen = Slice(Sort(numbered, (SortKey(Ref("aai_h", UINT64)),)), 0, n)
        back = Sort(chosen, (SortKey(Ref("aai_s", UINT64)),))
        return self._derived(Project(back, as_columns(identity(self.relation))), self.shape)

    def distinct(self, *subset: str) -> Object:
        """One row for each combination of values (of these columns): the first."""
        known(subset, self.relation.schema)
        return self._derived(Distinct(self.relation, subset or tuple(self.relation.schema)), self.shape)

    def unique(self, *subset: str) -> Object:
        """The same as `distinct`."""
        return self.distinct(*subset)

    def drop_nulls(self, *subset: str) -> Object:
        """Rows without NULL (in these columns)."""
        known(subset, self.relation.schema)
        names = [n for n in subset or self.relation.schema if self.relation.schema[n].nullable]
        return self.filter(*(Column(Ref(name)).is_not_null() for name in names))

    def explode(self, *names: str, keep_empty: bool = False) -> Object:
        """A row for each element of these arrays; rows with empty arrays are dropped unless `keep_empty`."""
        schema = self.relation.schema
        chosen = names or tuple(schema) if len(schema) == 1 else names
        known(chosen, schema)
        wrong = next((name for name in chosen if schema[name].name != "Array"), None)
        if wrong is not None or not chosen:
            raise DataTypeError(f"Column {wrong!r} is {schema[wrong] if wrong else 'not given'}, not an array.")
        return self._derived(Explode(self.relation, tuple(chosen), keep_empty), self.shape)

    # --- groups --------------------------------------------------------------------------------------------------

    def group_by(self, *keys: Any, **named: Any) -> GroupBy:
        """Rows with equal keys together; `.agg(…)` says what to compute. Groups come in the order of their keys."""
        if not keys and not named:
            raise DataTypeError("group_by needs at least one key.", remedy='For example group_by("k").')
        return GroupBy(self, keys, named)

    def value_counts(self, name: str = "count") -> Object:
        """How often each value occurs, most frequent first."""
        keys = tuple((n, Ref(n, kind)) for n, kind in self.relation.schema.items())
        counted = Aggregate(self.relation, keys, ((name, Call("len")),))
        return self._derived(Sort(counted, (SortKey(Ref(name, UINT64), True),)))

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
        """Rows of both whose keys are equal. `how`: inner, left, right, full, cross, semi, anti."""
        if how not in JOINS:
            raise DataTypeError(
                f"There is no {how!r} join.", remedy=f"Use one of {', '.join(JOINS)}; join_asof is its own method."
            )
        pairs = join_pairs(on, left_on, right_on)
        if (how == "cross") == bool(pairs):
            raise DataTypeError("A cross join has no keys; every other join needs some.")
        check_pairs(pairs, self.relation, other.relation)
        outputs = join_outputs(self.relation, other.relation, pairs, how, suffix)
        return self._derived(Join(self.relation, other.relation, how, pairs, outputs))

    def join_asof(
        self,
        other: Object,
        on: str | tuple[str, str],
        by: str | Sequence[str] | None = None,
        *,
        strategy: str = "backward",
        suffix: str = "_right",
    ) -> Object:
        """Each row with the row of `other` nearest in `on` (not after it, for `backward`), among those with equal
        `by`."""
        if strategy not in ASOF:
            raise DataTypeError(f"There is no asof strategy {strategy!r}.", remedy=f"Use one of {', '.join(ASOF)}.")
        left_on, right_on = (on, on) if isinstance(on, str) else on
        pairs = join_pairs(by, None, None)
        check_pairs((*pairs, (left_on, right_on)), self.relation, other.relation)
        outputs = join_outputs(self.relation, other.relation, pairs, "asof", suffix)
        join = Join(self.relation, other.relation, "asof", pairs, outputs, (left_on, ASOF[strategy], right_on))
        return self._derived(join)

    def concat(self, *others: Object) -> Object:
        """The rows of these Objects one after the other; columns of the same name get a type that holds both."""
        everyone = [self.relation, *(each.relation for each in others)]
        names = list(self.relation.schema)
        for relation in everyone[1:]:
            if len(names) == 1 and len(relation.schema) == 1:
                continue
            if sorted(relation.schema) != sorted(names):
                raise DataTypeError(
                    f"The columns differ: {names} and {list(relation.schema)}.", remedy="Select or rename them first."
                )
        kinds = {name: common_type(name, [column_of(r, name).type for r in everyone]) for name in names}
        members = tuple(shaped(relation, kinds) for relation in everyone)
        return self._derived(Concat(members), "table" if self.shape in ("table", "record") else "column")

    # --- helpers -------------------------------------------------------------------------------------------------

    def _resolved(
        self, columns: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[Relation, dict[str, Node], list[tuple[str, Node]]]:
        """Expressions and other Objects brought to one relation: it, our own columns over it, and the given ones."""
        given = [(name_of(each), each) for each in columns] + list(named.items())
        check_column_names(name for name, _ in given)
        objects = [each for _, each in given if _is_object(each) and each.shape != "scalar"]
        base, (own, *maps) = align([self.relation, *(each.relation for each in objects)])
        lowered = {id(each): mapping for each, mapping in zip(objects, maps, strict=True)}
        return (
            base,
            own,
            [
                (name, self._node(each, own, lowered, positional=i < len(columns)))
                for i, (name, each) in enumerate(given)
            ],
        )

    def _node(self, given: Any, own: dict[str, Node], lowered: dict[int, dict[str, Node]], positional: bool) -> Node:
        value: Any = Column(Ref(given)) if isinstance(given, str) and positional else given
        if isinstance(value, Column):
            return substitute(bind(value.node, self.relation.schema), own)
        if _is_object(value):
            if value.shape in ("table", "record"):
                raise DataTypeError(
                    f"A table of columns {value.columns} stands where one column is needed.",
                    remedy='Pick one: obj["x"].',
                )
            return next(iter(lowered[id(value)].values())) if id(value) in lowered else self._scalar(value.relation)
        return Literal(value, literal_type(value))

    def _scalar(self, relation: Relation) -> Node:
        """An aggregate of our own rows is an expression; of other rows, a subquery."""
        if isinstance(relation, Aggregate) and not relation.keys:
            base, (own, theirs) = align([self.relation, relation.input])
            if base == self.relation:
                ((_, node),) = relation.values
                return substitute(node, theirs)
            del own
        return Scalar(relation)


def _is_object(value: Any) -> bool:
    return isinstance(value, Relational)
