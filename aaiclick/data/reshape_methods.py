"""Reshape methods of Object: rows to columns and back, nested values, and rows of several Objects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from aaiclick.data.argument_checks import check_methods
from aaiclick.data.compile.join_columns import cast_to_types, column_of, common_type, hidden_name
from aaiclick.data.compile.relation_nodes import Aggregate, Columns, Concat, Explode, Filter, Project, Relation, Sort
from aaiclick.data.compile.row_alignment import as_columns, identity_mapping
from aaiclick.data.errors import DataTypeError
from aaiclick.data.expressions.column import Column
from aaiclick.data.expressions.nodes import ExpressionNode, FunctionCall, Literal, Ref, RowIndex, SortKey
from aaiclick.data.io.nested_arrays import field_names
from aaiclick.data.pending_result import explain_await
from aaiclick.data.runtime.tables import check_column_names
from aaiclick.data.table_base import TableBase, check_object
from aaiclick.data.types import INT64, STRING, DataType

if TYPE_CHECKING:
    from aaiclick.data.object import Object

MAX_PIVOTED_COLUMNS = 1_000
AGGREGATES = ("first", "last", "sum", "mean", "median", "min", "max", "count", "len")


@check_methods
class ReshapeMethods(TableBase):
    """Methods that turn rows into columns and columns into rows, and combine the rows of several Objects."""

    def explode(self, *names: str | Sequence[str], keep_empty: bool = False) -> Object:
        """Return a row for each array element; rows with empty arrays are dropped unless `keep_empty`."""
        schema = self.relation.schema
        chosen = self._expand_names(names, "explode") or (tuple(schema) if len(schema) == 1 else ())
        non_array = next((name for name in chosen if schema[name].name != "Array"), None)
        if non_array is not None or not chosen:
            raise DataTypeError(
                f"Column {non_array!r} is {schema[non_array]}, not an array."
                if non_array
                else "explode needs the name of an array column."
            )
        return self._derive_object(Explode(self.relation, tuple(chosen), keep_empty), self.shape)

    def unnest(self, *names: str | Sequence[str]) -> Object:
        """Replace struct columns by their fields; the fields of a NULL struct are NULL."""
        schema = self.relation.schema
        chosen = self._expand_names(names, "unnest") or tuple(n for n, dtype in schema.items() if dtype.name == "Tuple")
        flat = next((name for name in chosen if schema[name].name != "Tuple"), None)
        if flat is not None or not chosen:
            raise DataTypeError(
                f"Column {flat!r} is {schema[flat]}, not a struct." if flat else "There is no struct column to unnest."
            )
        columns: list[tuple[str, ExpressionNode]] = []
        for name, dtype in schema.items():
            ref = Ref(name, dtype)
            fields = field_names(dtype) if name in chosen else ()
            columns += [(field, FunctionCall("field", (ref,), (field,))) for field in fields] or [(name, ref)]
        check_column_names(name for name, _ in columns)
        return self._derive_object(Project(self.relation, tuple(columns)))

    def unpivot(
        self,
        on: str | Sequence[str] | Column | None = None,
        *,
        index: str | Sequence[str] | Column | None = None,
        variable_name: str = "variable",
        value_name: str = "value",
    ) -> Object:
        """Turn columns into rows: one with the name and one with the value, in addition to the `index` columns.

        `on` are the columns to turn, by default all but `index`. Their values get a common type; NULLs stay rows.
        """
        schema = self.relation.schema
        index_names = () if index is None else self._expand_names([index], "unpivot")
        turned = tuple(n for n in schema if n not in index_names) if on is None else self._expand_names([on], "unpivot")
        if not turned:
            raise DataTypeError(
                "unpivot needs at least one column.", remedy='For example unpivot(["x", "y"], index="k").'
            )
        check_column_names((*index_names, variable_name, value_name))
        dtype = common_type(value_name, [schema[name] for name in turned])
        members = tuple(
            Project(
                self.relation,
                (
                    *((k, Ref(k, schema[k])) for k in index_names),
                    (variable_name, Literal(name, STRING)),
                    (value_name, FunctionCall("cast", (Ref(name, schema[name]),), (dtype,))),
                ),
            )
            for name in turned
        )
        return self._derive_object(Concat(members))

    @explain_await
    async def pivot(
        self,
        on: str | Column,
        *,
        index: str | Sequence[str] | Column,
        values: str | Sequence[str] | Column,
        aggregate: str = "first",
        columns: Sequence[object] | Mapping[Any, str] | None = None,
    ) -> Object:
        """Turn the values of column `on` into columns, which hold an aggregate of `values`; a row per `index`.

        `columns` are the values of `on` in their order, or a dict of their names; without it they are read, in order
        of first appearance. With several columns in `values` their names are `value_column`.
        Rows are sorted by `index`. Without rows for a cell it is NULL, or 0 for sum, count and len.
        """
        keys = self._expand_names([index], "pivot")
        on, names = self._only_name(on, "on"), self._expand_names([values], "pivot")
        if not names:
            raise DataTypeError("pivot needs a column of values.", remedy='For example values="v".')
        if aggregate not in AGGREGATES:
            raise DataTypeError(f"Unknown aggregate {aggregate!r:.60}.", remedy=f"Use one of {', '.join(AGGREGATES)}.")
        owner: Any = self
        chosen = (
            await owner.select(on).distinct().head(MAX_PIVOTED_COLUMNS + 1)[on].data() if columns is None else columns
        )
        if len(chosen) > MAX_PIVOTED_COLUMNS:
            raise DataTypeError(
                f"Column {on!r} has more than {MAX_PIVOTED_COLUMNS:,} values.", remedy="Filter it, or group it first."
            )
        labels = _cell_labels(chosen)
        cells = {
            f"{name}_{label}" if len(names) > 1 else label: _cell(on, name, value, aggregate)
            for name in names
            for value, label in labels.items()
        }
        if len({*cells, *keys}) != len(labels) * len(names) + len(keys) or "" in labels.values():
            raise DataTypeError(
                f"The values of {on!r} are not names of columns: some are empty or equal.",
                remedy="Name them with columns={value: name, …}.",
            )
        return owner.group_by(*keys).agg(**cells)

    def _only_name(self, column: str | Column, label: str) -> str:
        names = self._expand_names([column], "pivot")
        if len(names) != 1:
            raise DataTypeError(f"{label} of pivot(…) must be one column, and is {len(names)}.")
        return names[0]

    # --- several Objects -----------------------------------------------------------------------------------------

    def concat(self, *objects: Object | Sequence[Object], how: str = "vertical") -> Object:
        """Append the rows of other Objects; columns of different types get their common supertype.

        With `how="diagonal"` the Objects may have different columns; a missing one is NULL.
        """
        if how not in ("vertical", "diagonal"):
            raise DataTypeError(f"how= is {how!r:.60}.", remedy='Use "vertical" or "diagonal".')
        relations = [self.relation, *(check_object(obj, "concat").relation for obj in _flatten_objects(objects))]
        names = list(self.relation.schema)
        if how == "diagonal":
            names = list(dict.fromkeys(name for relation in relations for name in relation.schema))
            return self._derive_object(Concat(tuple(_fill_columns(relations, names))))
        for relation in relations[1:]:
            if len(names) == 1 and len(relation.schema) == 1:
                continue
            if sorted(relation.schema) != sorted(names):
                raise DataTypeError(
                    f"The columns differ: {names} and {list(relation.schema)}.",
                    remedy='Select or rename them first, or use how="diagonal".',
                )
        return self._derive_object(
            Concat(_cast_members(relations, names)), "table" if self.shape in ("table", "record") else "column"
        )

    def union(self, *objects: Object | Sequence[Object]) -> Object:
        """Return the different rows of this and other Objects, in order of first appearance; NULLs are equal."""
        combined: Any = self.concat(*objects)
        return combined.distinct()

    def intersect(self, other: Object) -> Object:
        """Return the different rows that are in both Objects, in the order of this one; NULLs are equal."""
        return self._compare_rows(other, "intersect", is_in_other=True)

    def difference(self, other: Object) -> Object:
        """Return the different rows that are not in the other Object (SQL EXCEPT), in order; NULLs are equal."""
        return self._compare_rows(other, "difference", is_in_other=False)

    def _compare_rows(self, other: Object, method: str, *, is_in_other: bool) -> Object:
        relations = [self.relation, check_object(other, method).relation]
        names = list(self.relation.schema)
        if sorted(relations[1].schema) != sorted(names) and not all(len(r.schema) == 1 for r in relations):
            raise DataTypeError(
                f"The columns differ: {names} and {list(relations[1].schema)}.", remedy="Select the same."
            )
        left, right = _cast_members(relations, names)
        position, first_position, own_count, all_count = (
            hidden_name(label, names) for label in ("position", "first", "own", "all")
        )
        own = Project(left, (*as_columns(identity_mapping(left)), (position, FunctionCall("_position", (RowIndex(),)))))
        missing = FunctionCall("cast", (Literal(None, INT64.as_nullable()),), (INT64.as_nullable(),))
        foreign = Project(right, (*as_columns(identity_mapping(right)), (position, missing)))
        own_position, rows = Ref(position, INT64.as_nullable()), Concat((_cast_position(own, position), foreign))
        keys: Columns = tuple((name, Ref(name, dtype)) for name, dtype in left.schema.items())
        first, count = FunctionCall("min", (own_position,)), FunctionCall("count", (own_position,))
        counted = Aggregate(rows, keys, ((first_position, first), (own_count, count), (all_count, FunctionCall("len"))))
        zero = Literal(0, INT64)
        is_own = FunctionCall("gt", (Ref(own_count, INT64), zero))
        foreign_rows = FunctionCall("sub", (Ref(all_count, INT64), Ref(own_count, INT64)))
        is_selected = FunctionCall("gt" if is_in_other else "eq", (foreign_rows, zero))
        chosen = Filter(counted, FunctionCall("and", (is_own, is_selected)))
        ordered = Sort(chosen, (SortKey(Ref(first_position, INT64.as_nullable())),))
        return self._derive_object(Project(ordered, keys), self.shape)


def _flatten_objects(objects: Sequence[object]) -> list[Any]:
    flat: list[Any] = []
    for obj in objects:
        flat += obj if isinstance(obj, list | tuple) else [obj]
    return flat


def _cast_members(relations: Sequence[Relation], names: Sequence[str]) -> tuple[Relation, ...]:
    dtypes = {name: common_type(name, [column_of(r, name).type for r in relations]) for name in names}
    return tuple(cast_to_types(relation, dtypes) for relation in relations)


def _cast_position(relation: Project, position: str) -> Relation:
    nullable = INT64.as_nullable()
    return Project(
        relation.input,
        tuple(
            (n, FunctionCall("cast", (node,), (nullable,)) if n == position else node) for n, node in relation.columns
        ),
    )


def _fill_columns(relations: Sequence[Relation], names: Sequence[str]) -> list[Relation]:
    """Return the relations with the same columns, NULL where one has none."""
    dtypes: dict[str, DataType] = {}
    for name in names:
        present = [relation.schema[name] for relation in relations if name in relation.schema]
        dtype = common_type(name, present)
        dtypes[name] = replace(dtype, nullable=True) if len(present) < len(relations) else dtype
    members: list[Relation] = []
    for relation in relations:
        columns: list[tuple[str, ExpressionNode]] = []
        for name, dtype in dtypes.items():
            own = relation.schema.get(name)
            if own is None:
                columns.append((name, FunctionCall("_missing", (), (dtype,))))
            else:
                columns.append(
                    (name, FunctionCall("cast", (Ref(name, own),), (dtype,)) if own != dtype else Ref(name, own))
                )
        members.append(Project(relation, tuple(columns)))
    return members


def _cell_labels(values: Sequence[object] | Mapping[Any, str]) -> dict[Any, str]:
    """Return the name of the column of each value."""
    unusable = [cast("object", value) for value in values if isinstance(value, list | dict | set)]
    if unusable:
        raise DataTypeError(
            f"{unusable[0]!r:.60} in columns of pivot(…) is not a plain value.", remedy="Cast it first."
        )
    if not isinstance(values, Mapping):
        return {value: _cell_name(value) for value in values}
    unnamed = next((name for name in values.values() if not isinstance(name, str)), None)  # pyright: ignore[reportUnnecessaryIsInstance]
    if unnamed is not None:
        raise DataTypeError(f"{unnamed!r:.60} in columns of pivot(…) is not the name of a column.")
    return dict(values)


def _cell_name(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _cell(on: str, values: str, value: object, aggregate: str) -> Column:
    column = Column(Ref(on))
    is_nan = isinstance(value, float) and math.isnan(value)
    is_cell = column.is_null() if value is None else column.is_nan() if is_nan else column == value
    if aggregate == "len":
        return is_cell.count_if()
    cell: Any = Column(Ref(values)).filter(is_cell)
    return getattr(cell, aggregate)()
