"""Object: rows in ClickHouse that behave like a column or a table in Python.

An Object is lazy: operations build an expression, and one SELECT runs when a result is read (`data()`, `to_arrow()`, …)
or when the Object is materialised (`await obj`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

from aaiclick.data.argument_checks import check_methods
from aaiclick.data.compile.relation_nodes import Aggregate, Filter, Project, Relation, Scan, iter_scans
from aaiclick.data.compile.row_alignment import align_rows
from aaiclick.data.compile.statements import compile_query, is_arrow_type
from aaiclick.data.context import DataContext, current_context_or
from aaiclick.data.errors import DataError, DataTypeError, check_integer, column_not_found
from aaiclick.data.expressions.column import Column, relation_of
from aaiclick.data.expressions.functions import FUNCTIONS, FunctionKind
from aaiclick.data.expressions.literals import literal_type
from aaiclick.data.expressions.nodes import (
    ExpressionNode,
    FunctionCall,
    ListLambda,
    Literal,
    Membership,
    Over,
    Ref,
    RowIndex,
    Scalar,
    SortKey,
    substitute_columns,
)
from aaiclick.data.expressions.operators import METHOD_GROUPS, ExpressionMethods
from aaiclick.data.fetch_methods import ReaderMethods
from aaiclick.data.join_methods import JoinMethods
from aaiclick.data.method_hints import EXPRESSION_HINTS, OBJECT_HINTS, unknown_method
from aaiclick.data.pending_result import explain_await
from aaiclick.data.relational_methods import TableMethods
from aaiclick.data.reshape_methods import ReshapeMethods
from aaiclick.data.runtime.execute import is_heavy, is_table, prepare_relation, read_table, store_table, strip_identity
from aaiclick.data.runtime.literal_result_rows import LiteralRows
from aaiclick.data.runtime.tables import VALUE, Shape, Table, check_columns
from aaiclick.data.types import DataType

if TYPE_CHECKING:
    from aaiclick.data.view import View

MAX_STEPS = 250
COLUMN_HINTS, TABLE_HINTS = OBJECT_HINTS | EXPRESSION_HINTS, EXPRESSION_HINTS | OBJECT_HINTS


@check_methods
class Object(TableMethods, JoinMethods, ReshapeMethods, ReaderMethods, ExpressionMethods):
    """Rows in ClickHouse, created by the `create_object_from_…` functions and by operations on other Objects.

    An Object of one unnamed column (from a list), or one column selected with `obj["x"]`, can be used in expressions:
    `obj + 1`, `a + b`, `obj["x"].mean()`. Two Objects derived from the same rows combine without a join; others are
    combined row by row and must be of equal length.

    ```python
    await (numbers["x"] + 1).data()  # [2, 4, 3]
    ```
    """

    def __init__(self, relation: Relation, shape: Shape, context: DataContext) -> None:
        if relation.depth > MAX_STEPS:
            raise DataError(
                f"This expression has more than {MAX_STEPS} steps.",
                remedy="Materialise intermediate results with `obj = await obj`.",
            )
        self._expression = relation
        self._shape: Shape = shape
        self._context = context
        self._table: Table | None = None
        self._read_count = 0

    @classmethod
    def from_table(cls, table: Table) -> Object:
        return Object(Scan(table), table.shape, table.context)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name == "inner":
                raise AttributeError(name)
            hints = COLUMN_HINTS if self._shape == "column" else TABLE_HINTS
            hints = hints | {column: f'obj["{column}"]' for column in self.columns}
            raise unknown_method("Objects", name, hints, METHOD_GROUPS, dir(type(self)))

    # --- properties ----------------------------------------------------------------------------------------------

    @property
    def relation(self) -> Relation:
        """The relation that computes the rows; a scan of its table once it is materialised."""
        return self._expression if self._table is None else Scan(self._table)

    @property
    def shape(self) -> Shape:
        """`"scalar"`, `"column"`, `"table"`, or `"record"` (a table created from one dict of values)."""
        return self._shape

    @property
    def _is_wide(self) -> bool:
        """Whether it is a table rather than a single column or value."""
        return self._shape in ("table", "record")

    @property
    def context(self) -> DataContext:
        return self._context

    @property
    def schema(self) -> dict[str, DataType]:
        """Column names and their ClickHouse types."""
        return dict(self.relation.schema)

    @property
    def columns(self) -> list[str]:
        return list(self.relation.schema)

    @property
    def table_id(self) -> str:
        """Name of its ClickHouse table; raises DataError if the Object is not materialised."""
        relation = strip_identity(self.relation)
        if isinstance(relation, Scan) and is_table(relation):
            return relation.table.name
        raise DataError("This Object is a lazy expression and has no table yet.", remedy="Use `obj = await obj` first.")

    @property
    def literal(self) -> LiteralRows | None:
        """The rows of a literal, which has no ClickHouse table yet; None for a table or an expression."""
        relation = strip_identity(self.relation)
        return relation.table.literal if isinstance(relation, Scan) else None

    def to_dict(self) -> dict[str, Any]:
        """Serialise to a reference that another process can open with `open_reference`."""
        return {"object_type": "object", "table_id": self.table_id}

    def sql(self, *, pretty: bool = True) -> str:
        """Return the SELECT that computes this Object."""
        return compile_query(self.relation, pretty=pretty).text

    @explain_await
    async def explain(self, kind: str = "PLAN") -> str:
        """Return ClickHouse's EXPLAIN output: `PLAN`, `PIPELINE`, `SYNTAX` or `ESTIMATE`."""
        if kind not in ("PLAN", "PIPELINE", "SYNTAX", "ESTIMATE", "QUERY TREE"):
            raise DataTypeError(f"Unknown EXPLAIN type {kind!r}.", remedy="Use PLAN, PIPELINE, SYNTAX or ESTIMATE.")
        context = self._open_context()
        query = compile_query(await prepare_relation(context, self.relation))
        rows = await context.client.read_text(
            f"EXPLAIN {kind} {query.text}", query.parameters, query.settings, context.query_id()
        )
        return "\n".join("  ".join(str(v) for v in row.values()) for row in rows.to_pylist())

    # --- materialisation -----------------------------------------------------------------------------------------

    @explain_await
    async def materialize(self) -> Object:
        """Store the result as a table and return an Object for it. Later reads of this Object use the table."""
        relation = strip_identity(self.relation)
        context = self._open_context()
        context.check_relation(relation)
        if is_table(relation) and isinstance(relation, Scan) and relation.table.shape == self._shape:
            return self if type(self) is Object else Object(relation, self._shape, self._context)
        if self._table is None:
            self._table = await self._store(context, relation)
            self._context = context
        return Object.from_table(self._table)

    async def store_literal(self) -> None:
        """Create the ClickHouse table of a literal, since another process needs it."""
        for scan in iter_scans(self.relation):
            await scan.table.context.store_literal(scan.table)

    async def _store(self, context: DataContext, relation: Relation) -> Table:
        columns = tuple(relation.schema.items())
        if (
            self._shape != "scalar"
            or context.max_literal_bytes < 0
            or not all(map(is_arrow_type, dict(columns).values()))
        ):
            return await store_table(context, await prepare_relation(context, relation), self._shape)
        rows, columns = await read_table(context, relation)
        check_columns(columns)
        return context.add_literal(columns, self._shape, LiteralRows(rows, columns))

    def __await__(self) -> Generator[Any, None, Object]:
        return self.materialize().__await__()

    def _open_context(self) -> DataContext:
        return current_context_or(self._context)

    async def _record_read(self) -> None:
        """Count a read; materialise an expensive result at its second read."""
        self._read_count += 1
        if self._read_count == 2 and self._table is None and is_heavy(self._expression):
            await self.materialize()

    # --- expressions ---------------------------------------------------------------------------------------------

    def _derive_object(self, relation: Relation, shape: Shape = "table") -> Any:
        return Object(relation, shape, self._context)

    def _lift_value(self, value: object) -> Self:
        """Repeat a Python value for every row of this Object."""
        node = Literal(value, literal_type(value))
        return self._derive_object(
            Project(self.relation, ((VALUE, node),)), "scalar" if self._shape == "scalar" else "column"
        )

    def _apply_function(self, function: str, *args: object, params: tuple[object, ...] = ()) -> Self:
        if self._is_wide:
            return self._apply_per_column(function, args, params)
        base, nodes = self._align_operands([self, *args])
        call = FunctionCall(function, tuple(nodes), params)
        _ = call.type
        return self._function_result(base, self._output_name(args), call)

    def _output_name(self, args: Sequence[object]) -> str:
        (name,) = self.relation.schema
        names = {next(iter(a.relation.schema)) for a in args if isinstance(a, Object) and a.shape == "column"}
        return name if self._shape != "scalar" and names <= {name} else VALUE

    def _function_result(self, base: Relation, name: str, call: FunctionCall) -> Any:
        if FUNCTIONS[call.function].kind is FunctionKind.AGGREGATE:
            return self._derive_object(Aggregate(base, (), ((name, call),)), "scalar")
        return self._derive_object(Project(base, ((name, call),)), "scalar" if self._has_one_row(base) else "column")

    def _has_one_row(self, base: Relation) -> bool:
        while isinstance(base, Project):
            base = base.input
        return (isinstance(base, Aggregate) and not base.keys) or (
            isinstance(base, Scan) and base.table.shape == "scalar"
        )

    def _apply_per_column(self, function: str, args: tuple[Any, ...], params: tuple[Any, ...]) -> Any:
        """Apply a function to every column; two tables must have the same columns."""
        tables = [arg for arg in args if isinstance(arg, Object) and arg._is_wide]
        for other in tables:
            if other.columns != self.columns:
                raise DataError(
                    f"The tables have different columns: {self.columns} and {other.columns}.",
                    remedy="Select the same columns.",
                )
        names = [name for name, dtype in self.schema.items() if _accepts_type(function, dtype)]
        parts = [
            self[name]._apply_function(
                function, *(a[name] if any(a is t for t in tables) else a for a in args), params=params
            )
            for name in names
        ]
        return self._combine_columns(dict(zip(names, parts, strict=True)))

    def _combine_columns(self, parts: dict[str, Any]) -> Any:
        if not parts:
            raise DataTypeError("No column has a type that this function accepts.")
        relations = [part.relation for part in parts.values()]
        if all(isinstance(relation, Aggregate) for relation in relations):
            base, maps = align_rows([relation.input for relation in relations])
            values = tuple(
                (name, substitute_columns(relation.values[0][1], mapping))
                for name, relation, mapping in zip(parts, relations, maps, strict=True)
            )
            return self._derive_object(Aggregate(base, (), values))
        base, maps = align_rows(relations)
        nodes = tuple((name, next(iter(mapping.values()))) for name, mapping in zip(parts, maps, strict=True))
        return self._derive_object(Project(base, nodes))

    def _align_operands(self, operands: Sequence[object]) -> tuple[Relation, list[ExpressionNode]]:
        """Return one relation for all operands, and each operand as an expression over it."""
        objects = [operand for operand in operands if isinstance(operand, Object)]
        wide = next((obj for obj in objects if obj._is_wide), None)
        if wide is not None:
            raise DataTypeError(
                f"A table of columns {wide.columns} was passed where one column is needed.",
                remedy='Select one: obj["x"].',
            )
        row_sources = [obj for obj in objects if obj.shape == "column"] or objects[:1]
        base, maps = align_rows([obj.relation for obj in row_sources])
        mappings = dict(zip((id(obj) for obj in row_sources), maps, strict=True))
        return base, [self._operand_node(operand, mappings, base) for operand in operands]

    def _operand_node(
        self, value: object, mappings: dict[int, dict[str, ExpressionNode]], base: Relation
    ) -> ExpressionNode:
        if isinstance(value, Object):
            if id(value) in mappings:
                return next(iter(mappings[id(value)].values()))
            if value.relation == base:
                return Ref(next(iter(value.relation.schema)), next(iter(value.relation.schema.values())))
            return Scalar(value.relation)
        if isinstance(value, Column):
            raise DataTypeError(
                "A col(…) expression cannot be combined with an Object.",
                remedy='Use obj["x"], or col(…) inside select or with_columns.',
            )
        return Literal(value, literal_type(value))

    def _apply_window(
        self,
        function: str,
        *args: object,
        params: tuple[object, ...] = (),
        order: tuple[Any, ...] = (),
        natural: bool = True,
        frame: tuple[str, str] | None = None,
        reverse: bool = False,
    ) -> Self:
        base, (node, *arg_nodes) = self._align_operands([self, *args])
        own = () if FUNCTIONS[function].kind is FunctionKind.WINDOW and function == "row_number" else (node,)
        call = FunctionCall(function, (*own, *arg_nodes), params)
        keys = tuple(SortKey(node, bool(descending)) for _, descending in order)
        over = Over(call, (), keys, natural, frame, reverse)
        _ = over.type
        return self._derive_object(Project(base, ((self._output_name(()), over),)), "column")

    def _apply_range_window(self, function: str, by: object, width: int, params: tuple[object, ...]) -> Self:  # noqa: ARG002
        raise DataTypeError(
            "rolling(…, by=) needs a col(…) expression.",
            remedy='Use obj.with_columns(x=col("x").rolling("sum", "1h", by="t")).',
        )

    def _apply_lambda(self, function: str, body: ExpressionNode, label: str) -> Self:
        base, (node,) = self._align_operands([self])
        change = ListLambda(function, node, body, label).with_children((node, body))
        _ = change.type
        return self._derive_object(Project(base, ((self._output_name(()), change),)), self._shape)

    def isin(self, values: Any) -> Self:
        """Whether it is one of these values, or one of the values of an Object with one column."""
        relation = relation_of(values)
        if relation is None:
            return super().isin(values)
        base, (node,) = self._align_operands([self])
        member = Membership(node, relation)
        _ = member.type
        return self._derive_object(Project(base, ((self._output_name(()), member),)), self._shape)

    def _apply_positional(self, function: str) -> Self:
        if self._is_wide:
            return self._combine_columns({name: self[name]._apply_positional(function) for name in self.columns})
        ((name, dtype),) = self.relation.schema.items()
        call = FunctionCall(function, (Ref(name, dtype), RowIndex()))
        return self._derive_object(Aggregate(self.relation, (), ((name, call),)), "scalar")

    # --- selection -----------------------------------------------------------------------------------------------

    def __getitem__(self, key: object) -> Any:
        """Select a column `obj["x"]`, columns `obj[["x", "y"]]`, rows `obj[10:20]`, or rows by a mask `obj[mask]`."""
        if isinstance(key, str):
            if key not in self.relation.schema:
                raise column_not_found(key, self.relation.schema)
            return self._derive_object(Project(self.relation, ((key, Ref(key, self.relation.schema[key])),)), "column")
        if isinstance(key, slice):
            return self._slice_rows(cast("Any", key))
        if isinstance(key, list | tuple):
            return self.select(*cast("list[Any]", key))
        if isinstance(key, ExpressionMethods):
            return self.filter(key)
        raise DataTypeError(
            f"An Object cannot be indexed by {type(key).__name__}.",
            remedy='Use obj["x"], obj[["x", "y"]], obj[10:20] or obj[mask].',
        )

    def _slice_rows(self, key: slice) -> Any:
        """Return rows as Python slices a list: negative bounds count from the end, a negative step reverses."""
        step = 1 if key.step is None else check_integer(key.step, "The step of a slice")
        if step == 0 or (step < 0 and (step, key.start, key.stop) != (-1, None, None)):
            raise DataTypeError("A slice with a negative step is obj[::-1].", remedy="Slice first, then reverse.")
        if step < 0:
            return self.reverse()
        start = 0 if key.start is None else check_integer(key.start, "The start of a slice")
        stop = None if key.stop is None else check_integer(key.stop, "The end of a slice")
        rows: Any = self
        if start < 0 and stop is not None and stop >= 0:
            number, count = FunctionCall("_position", (RowIndex(),)), Over(FunctionCall("len"))
            distance = FunctionCall("sub", (count, _integer_node(-start)))
            within = FunctionCall("lt", (number, _integer_node(stop)))
            is_selected = FunctionCall("and", (FunctionCall("ge", (number, distance)), within))
            rows = self._derive_object(Filter(self.relation, is_selected), self._shape)
        elif start < 0:
            rows = self.tail(-start) if stop is None else self.tail(-start).head(stop)
        elif stop is not None and stop < 0:
            rows = self.slice(start).head(stop)
        else:
            rows = self.slice(start, None if stop is None else max(0, stop - start))
        if step == 1:
            return rows
        every = FunctionCall("mod_by", (FunctionCall("_position", (RowIndex(),)),), (step,))
        return self._derive_object(Filter(rows.relation, FunctionCall("eq", (every, _integer_node(0)))), self._shape)

    def slice(self, offset: int, length: int | None = None) -> Object:
        """Return `length` rows from `offset` on, from the end if it is negative; a View if the Object is a table."""
        relation = strip_identity(self.relation)
        is_stored = type(self) is Object and self._shape != "scalar" and is_table(relation)
        if is_stored and isinstance(relation, Scan) and check_integer(offset, "The offset") >= 0:
            from aaiclick.data.view import View  # subclass of Object: circular at module level

            return View(relation.table, offset, length)
        return super().slice(offset, length)

    @explain_await
    async def chunks(self, rows: int = 100_000) -> list[View]:
        """Split the Object into Views of `rows` rows, for parallel processing."""
        from aaiclick.data.view import View

        if rows < 1:
            raise DataTypeError(f"A chunk must have at least one row, not {rows}.")
        whole = self if isinstance(self, View) else View(await self.materialize())
        total = await whole.count()
        return [whole.take_range(start, min(rows, total - start)) for start in range(0, total, rows)]

    @explain_await
    async def insert(self, value: object) -> int:
        """Append rows and return the new length. The Object must be a table."""
        from aaiclick.data.create import insert

        return await insert(self, value)

    @explain_await
    async def describe(self) -> Object:
        """Summarise every column: count, NULLs, mean, standard deviation, minimum, maximum and quartiles."""
        from aaiclick.data.stats import describe_columns

        return await describe_columns(self)

    @explain_await
    async def correlation(self) -> Object:
        """Compute the Pearson correlation of every pair of numeric columns."""
        from aaiclick.data.stats import correlation_matrix

        return await correlation_matrix(self)

    def view(self, offset: int = 0, limit: int | None = None, where: str | Column | None = None) -> View:
        """Return a View of some of its rows, which another process can open."""
        from aaiclick.data.view import View

        return View(self, offset, limit, where)

    def tables(self) -> list[Table]:
        """List the tables that it reads."""
        return list({scan.table: None for scan in iter_scans(self.relation)})

    def _ipython_key_completions_(self) -> list[str]:
        """Return the names of the columns, which a notebook completes in `obj["…"]`."""
        return self.columns

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {dtype}" for name, dtype in self.relation.schema.items())
        relation = strip_identity(self.relation)
        location = relation.table.name if isinstance(relation, Scan) and is_table(relation) else "lazy"
        return f"<{type(self).__name__} {location} ({columns})>"


def _integer_node(value: int) -> Literal:
    return Literal(value, literal_type(value))


def _accepts_type(function: str, dtype: DataType) -> bool:
    """Whether a function of all columns includes those of a type."""
    if function in ("std", "var"):
        return dtype.is_numeric or dtype.is_bool
    return function not in ("sum", "mean", "quantile") or dtype.is_summable
