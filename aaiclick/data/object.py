"""Object: rows in ClickHouse that behave like a column or a table in Python.

An Object is lazy: operations build an expression, and one SELECT runs when a result is asked for (`data()`,
`to_arrow()`, …)
or when it is made a table (`await obj`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

from aaiclick.data.align import align
from aaiclick.data.column import Column
from aaiclick.data.context import DataContext, current_or
from aaiclick.data.errors import DataError, DataTypeError, column_not_found
from aaiclick.data.execute import is_heavy, is_table, prepare, store, strip
from aaiclick.data.expressive import Expressive
from aaiclick.data.functions import FUNCTIONS, Kind
from aaiclick.data.literals import literal_type
from aaiclick.data.nodes import Call, Literal, Node, Over, Ref, RowIndex, Scalar, SortKey, substitute
from aaiclick.data.outputs import Outputs
from aaiclick.data.relational import Relational
from aaiclick.data.relations import Aggregate, Project, Relation, Scan, scans
from aaiclick.data.statements import compile_query
from aaiclick.data.tables import VALUE, Shape, Table
from aaiclick.data.types import DataType

if TYPE_CHECKING:
    from aaiclick.data.view import View

MAX_STEPS = 250


class Object(Relational, Outputs, Expressive):
    """Rows in ClickHouse. Made by `create_object_from_value` and its relatives, and by operations on other Objects.

    An Object of one unnamed column (from a list), or one column picked with `obj["x"]`, takes part in expressions:
    `obj + 1`, `a + b`, `obj["x"].mean()`. Two Objects from the same rows combine without a join; others row by row,
    and must
    be of equal length.
    """

    def __init__(self, relation: Relation, shape: Shape, context: DataContext) -> None:
        if relation.depth > MAX_STEPS:
            raise DataError(
                f"This expression has more than {MAX_STEPS} steps.",
                remedy="Use `obj = await obj` now and then: it starts anew from a table.",
            )
        self._lazy = relation
        self._shape: Shape = shape
        self._context = context
        self._stored: Table | None = None
        self._reads = 0

    @classmethod
    def from_table(cls, table: Table) -> Object:
        return Object(Scan(table), table.shape, table.context)

    # --- what it is ----------------------------------------------------------------------------------------------

    @property
    def relation(self) -> Relation:
        """What it is computed from: its own table, once it has one."""
        return self._lazy if self._stored is None else Scan(self._stored)

    @property
    def shape(self) -> Shape:
        """`"scalar"`, `"column"`, `"table"`, or `"record"`: a table that was made of one dict of values."""
        return self._shape

    @property
    def _is_wide(self) -> bool:
        """Whether it has columns, rather than being one."""
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
        """The name of its table; only an Object that is a table has one."""
        relation = strip(self.relation)
        if isinstance(relation, Scan) and is_table(relation):
            return relation.table.name
        raise DataError("This Object is an expression and has no table yet.", remedy="Use `obj = await obj` first.")

    def to_dict(self) -> dict[str, Any]:
        """The serialised form, by which another process finds the same table."""
        return {"object_type": "object", "table_id": self.table_id}

    def sql(self, *, pretty: bool = True) -> str:
        """The query that computes it."""
        return compile_query(self.relation, pretty=pretty).text

    async def explain(self, kind: str = "PLAN") -> str:
        """How ClickHouse would run it: `PLAN`, `PIPELINE`, `SYNTAX` or `ESTIMATE`."""
        if kind not in ("PLAN", "PIPELINE", "SYNTAX", "ESTIMATE", "QUERY TREE"):
            raise DataTypeError(f"There is no EXPLAIN {kind!r}.", remedy="Use PLAN, PIPELINE, SYNTAX or ESTIMATE.")
        context = self._ready()
        query = compile_query(await prepare(context, self.relation))
        rows: Any = await context.client.read_text(
            f"EXPLAIN {kind} {query.text}", query.parameters, query.settings, context.query_id()
        )
        return "\n".join("  ".join(str(v) for v in row.values()) for row in rows.to_pylist())

    # --- making a table ------------------------------------------------------------------------------------------

    async def materialize(self) -> Object:
        """An Object that is a table. Computed once: this Object reads the table from then on."""
        relation = strip(self.relation)
        context = self._ready()
        context.check(relation)
        if is_table(relation) and isinstance(relation, Scan) and relation.table.shape == self._shape:
            return self if type(self) is Object else Object(relation, self._shape, self._context)
        if self._stored is None:
            self._stored = await store(context, await prepare(context, relation), self._shape)
            self._context = context
        return Object.from_table(self._stored)

    def __await__(self) -> Generator[Any, None, Object]:
        return self.materialize().__await__()

    def _ready(self) -> DataContext:
        return current_or(self._context)

    async def _used(self) -> None:
        """The second time a costly result is read, it is kept."""
        self._reads += 1
        if self._reads == 2 and self._stored is None and is_heavy(self._lazy):
            await self.materialize()

    # --- expressions ---------------------------------------------------------------------------------------------

    def _derived(self, relation: Relation, shape: Shape = "table") -> Any:
        return Object(relation, shape, self._context)

    def _value(self, value: Any) -> Self:
        """A Python value beside every row of this Object."""
        node = Literal(value, literal_type(value))
        return self._derived(
            Project(self.relation, ((VALUE, node),)), "scalar" if self._shape == "scalar" else "column"
        )

    def _call(self, function: str, *args: Any, params: tuple[Any, ...] = ()) -> Self:
        if self._is_wide:
            return self._per_column(function, args, params)
        base, (node, *others) = self._aligned([self, *args])
        call = Call(function, (node, *others), params)
        _ = call.type
        return self._result(base, self._output_name(args), call)

    def _output_name(self, args: Sequence[Any]) -> str:
        (name,) = self.relation.schema
        names = {next(iter(a.relation.schema)) for a in args if isinstance(a, Object) and a.shape == "column"}
        return name if self._shape != "scalar" and names <= {name} else VALUE

    def _result(self, base: Relation, name: str, call: Call) -> Any:
        if FUNCTIONS[call.function].kind is Kind.AGGREGATE:
            return self._derived(Aggregate(base, (), ((name, call),)), "scalar")
        return self._derived(Project(base, ((name, call),)), "scalar" if self._is_single(base) else "column")

    def _is_single(self, base: Relation) -> bool:
        while isinstance(base, Project):
            base = base.input
        return (isinstance(base, Aggregate) and not base.keys) or (
            isinstance(base, Scan) and base.table.shape == "scalar"
        )

    def _per_column(self, function: str, args: tuple[Any, ...], params: tuple[Any, ...]) -> Any:
        """On a table an operation is done in every column; two tables must have the same columns."""
        tables = [arg for arg in args if isinstance(arg, Object) and arg._is_wide]
        for other in tables:
            if other.columns != self.columns:
                raise DataError(
                    f"The tables have different columns: {self.columns} and {other.columns}.",
                    remedy="Select the same ones.",
                )
        numeric = function in ("sum", "mean", "std", "var", "quantile")
        names = [n for n, kind in self.schema.items() if not numeric or kind.is_numeric or kind.is_bool]
        parts = [
            self[n]._call(function, *(a[n] if any(a is t for t in tables) else a for a in args), params=params)
            for n in names
        ]
        return self._side_by_side(dict(zip(names, parts, strict=True)))

    def _side_by_side(self, parts: dict[str, Any]) -> Any:
        if not parts:
            raise DataTypeError("There is no column that this can be done with.")
        relations = [part.relation for part in parts.values()]
        if all(isinstance(each, Aggregate) for each in relations):
            base, maps = align([each.input for each in relations])
            values = tuple(
                (n, substitute(each.values[0][1], m)) for n, each, m in zip(parts, relations, maps, strict=True)
            )
            return self._derived(Aggregate(base, (), values))
        base, maps = align(relations)
        nodes = tuple((name, next(iter(mapping.values()))) for name, mapping in zip(parts, maps, strict=True))
        return self._derived(Project(base, nodes))

    def _aligned(self, operands: Sequence[Any]) -> tuple[Relation, list[Node]]:
        """One relation for all operands, and each operand as an expression over it."""
        objects = [each for each in operands if isinstance(each, Object)]
        wide = next((each for each in objects if each._is_wide), None)
        if wide is not None:
            raise DataTypeError(
                f"A table of columns {wide.columns} stands where one column is needed.", remedy='Pick one: obj["x"].'
            )
        columns = [each for each in objects if each.shape == "column"]
        base, maps = align([each.relation for each in columns or objects[:1]])
        known = dict(zip((id(each) for each in columns or objects[:1]), maps, strict=True))
        return base, [self._operand(each, known, base) for each in operands]

    def _operand(self, value: Any, known: dict[int, dict[str, Node]], base: Relation) -> Node:
        if isinstance(value, Object):
            if id(value) in known:
                return next(iter(known[id(value)].values()))
            if value.relation == base:
                return Ref(next(iter(value.relation.schema)), next(iter(value.relation.schema.values())))
            return Scalar(value.relation)
        if isinstance(value, Column):
            raise DataTypeError(
                "A col(…) expression stands beside an Object.",
                remedy='Use obj["x"], or col(…) inside select or with_columns.',
            )
        return Literal(value, literal_type(value))

    def _window(
        self,
        function: str,
        *args: Any,
        params: tuple[Any, ...] = (),
        order: tuple[Any, ...] = (),
        natural: bool = True,
        frame: tuple[str, str] | None = None,
    ) -> Self:
        base, (node, *others) = self._aligned([self, *args])
        own = () if FUNCTIONS[function].kind is Kind.WINDOW and function != "shift" else (node,)
        call = Call(function, (*own, *others), params)
        keys = tuple(SortKey(node, bool(descending)) for _, descending in order)
        over = Over(call, (), keys, natural, frame)
        _ = over.type
        return self._derived(Project(base, ((self._output_name(()), over),)), "column")

    def _positional(self, function: str) -> Self:
        if self._is_wide:
            return self._side_by_side({name: self[name]._positional(function) for name in self.columns})
        ((name, kind),) = self.relation.schema.items()
        call = Call(function, (Ref(name, kind), RowIndex()))
        return self._derived(Aggregate(self.relation, (), ((name, call),)), "scalar")

    # --- picking -------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        """`obj["x"]` a column, `obj[["x", "y"]]` columns, `obj[10:20]` rows, `obj[mask]` rows where it holds."""
        if isinstance(key, str):
            if key not in self.relation.schema:
                raise column_not_found(key, self.relation.schema)
            return self._derived(Project(self.relation, ((key, Ref(key, self.relation.schema[key])),)), "column")
        if isinstance(key, slice):
            return self._sliced(cast("Any", key))
        if isinstance(key, list | tuple):
            return self.select(*cast("list[Any]", key))
        if isinstance(key, Expressive):
            return self.filter(key)
        raise DataTypeError(
            f"An Object is not indexed by {type(key).__name__}.",
            remedy='Use obj["x"], obj[["x", "y"]], obj[10:20] or obj[mask].',
        )

    def _sliced(self, key: slice) -> Any:
        start, stop = key.start or 0, key.stop
        if key.step not in (None, 1) or start < 0 or (stop is not None and stop < 0):
            raise DataTypeError(
                "Rows are sliced forwards from the start, one by one.",
                remedy="Use obj[10:20], or sort(…, descending=True).",
            )
        return self.slice(start, None if stop is None else max(0, stop - start))

    def slice(self, offset: int, length: int | None = None) -> Object:
        """`length` rows from `offset` on; of a table, a View."""
        relation = strip(self.relation)
        if type(self) is Object and self._shape != "scalar" and is_table(relation) and isinstance(relation, Scan):
            from aaiclick.data.view import View  # a View is an Object: the cycle is in the nature of the thing

            return View(relation.table, offset, length)
        return super().slice(offset, length)

    async def chunks(self, rows: int = 100_000) -> list[View]:
        """The whole of it as Views of so many rows: what can be worked on in parallel."""
        from aaiclick.data.view import View

        if rows < 1:
            raise DataTypeError(f"A chunk has at least one row, not {rows}.")
        whole = self if isinstance(self, View) else View(await self.materialize())
        total = await whole.count()
        return [whole.slice(start, min(rows, total - start)) for start in range(0, total, rows)]

    async def insert(self, value: Any) -> int:
        """Append rows; returns the new length. The Object must be a table."""
        from aaiclick.data.create import insert

        return await insert(self, value)

    async def describe(self) -> Object:
        """Count, NULLs, mean, deviation, extremes and quartiles of every column."""
        from aaiclick.data.stats import describe

        return await describe(self)

    async def correlation(self) -> Object:
        """Pearson correlation of every pair of numeric columns."""
        from aaiclick.data.stats import correlation

        return await correlation(self)

    def view(self, offset: int = 0, limit: int | None = None, where: str | Column | None = None) -> View:
        """A part of its rows as a View, which another process can open."""
        from aaiclick.data.view import View

        return View(self, offset, limit, where)

    def tables(self) -> list[Table]:
        """Every table it reads."""
        return list({scan.table: None for scan in scans(self.relation)})

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {kind}" for name, kind in self.relation.schema.items())
        where = strip(self.relation)
        place = where.table.name if isinstance(where, Scan) and is_table(where) else "lazy"
        return f"<{type(self).__name__} {place} ({columns})>"
