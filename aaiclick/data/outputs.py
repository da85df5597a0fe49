"""Ways out of an Object: Python, Arrow, dataframes, batches, and what a notebook or terminal shows."""

# pyarrow and clickhouse-connect ship no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

# These methods are parts of Object, kept here so that each file has one subject.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from aaiclick.data import results
from aaiclick.data.context import DataContext
from aaiclick.data.execute import read, read_batches
from aaiclick.data.export import export_file, export_s3
from aaiclick.data.nodes import Call
from aaiclick.data.relations import Aggregate, Relation, Slice
from aaiclick.data.s3 import SCHEME, S3Access
from aaiclick.data.tables import Shape

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import polars as pl
    from rich.table import Table as RichTable

SHOWN_ROWS = 10


class Outputs(ABC):
    """Reading methods of an Object. All of them give every row, in order."""

    @property
    @abstractmethod
    def relation(self) -> Relation: ...

    @property
    @abstractmethod
    def shape(self) -> Shape: ...

    @abstractmethod
    def _ready(self) -> DataContext: ...

    @abstractmethod
    async def _used(self) -> None: ...

    async def data(self) -> Any:
        """The whole result as Python values.

        A scalar Object gives its value, a column a list, a table a dict of lists.
        """
        table = await self.to_arrow()
        return results.to_python(table, tuple(self.relation.schema.items()), self.shape)

    async def rows(self) -> list[dict[str, Any]]:
        """The whole result as a list of dicts."""
        columns = results.to_python(await self.to_arrow(), tuple(self.relation.schema.items()), "table")
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    async def to_arrow(self) -> pa.Table:
        await self._used()
        table, _ = await read(self._ready(), self.relation)
        return table

    async def to_pandas(self) -> pd.DataFrame:
        return results.to_pandas(await self.to_arrow())

    async def to_polars(self) -> pl.DataFrame:
        return results.to_polars(await self.to_arrow())

    async def to_numpy(self) -> np.ndarray[Any, Any]:
        """A vector for one column, a matrix for several."""
        return results.to_numpy(await self.to_arrow())

    async def iter_batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Arrow batches as they come, in constant memory; leaving the loop ends the query."""
        stream = read_batches(self._ready(), self.relation)
        try:
            async for batch in stream:
                if batch.num_rows:
                    yield batch
        finally:
            await stream.aclose()

    async def count(self) -> int:
        """Number of rows."""
        counted = Aggregate(self.relation, (), (("n", Call("len")),))
        table, _ = await read(self._ready(), counted, ordered=False)
        return table.column(0)[0].as_py()

    @overload
    async def export(self, path: Path, *, format: str | None = None, s3: S3Access | None = None) -> Path: ...

    @overload
    async def export(self, path: str, *, format: str | None = None, s3: S3Access | None = None) -> Path | str: ...

    async def export(
        self,
        path: str | Path,
        *,
        format: str | None = None,  # noqa: A002
        s3: S3Access | None = None,
    ) -> Path | str:
        """Write a file, or an object `s3://bucket/key`: csv, tsv, json, jsonl, parquet, orc, avro or arrow, compressed
        if the name says so (`.csv.gz`). Returns where it is."""
        if str(path).startswith(SCHEME):  # never of a Path, which makes one slash of two
            return await export_s3(self._ready(), self.relation, str(path), format, s3)
        return await export_file(self._ready(), self.relation, path, format)

    async def show(self, rows: int = SHOWN_ROWS) -> None:
        """Print the first rows to the terminal."""
        from rich.console import Console

        Console().print(await self.rich(rows))

    async def rich(self, rows: int = SHOWN_ROWS) -> RichTable:
        """The first rows as a table for `rich`."""
        from aaiclick.data.render import rich_table

        return rich_table(await self._first(rows), self.relation.schema, rows)

    async def html(self, rows: int = SHOWN_ROWS) -> str:
        """The first rows as an HTML table."""
        from aaiclick.data.render import html_table

        return html_table(await self._first(rows), self.relation.schema, rows)

    def _repr_html_(self) -> str:
        """What a notebook shows: the columns. Reading rows needs `await obj.html()`, since a cell's loop is running."""
        from aaiclick.data.render import html_schema

        return html_schema(self.relation.schema, repr(self))

    async def _first(self, rows: int) -> list[list[Any]]:
        table, query = await read(self._ready(), Slice(self.relation, 0, rows + 1))
        return [results.column_values(table.column(i), kind) for i, (_, kind) in enumerate(query.columns)]
