"""Reader methods of Object: Python values, Arrow, data frames, batches, files, and display in notebooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from aaiclick.data.argument_checks import check_methods
from aaiclick.data.compile.relation_nodes import Aggregate, Relation, Slice
from aaiclick.data.context import DataContext
from aaiclick.data.expressions.nodes import FunctionCall
from aaiclick.data.io import from_arrow
from aaiclick.data.io.export import export_file, export_s3
from aaiclick.data.io.s3_client import SCHEME, S3Access
from aaiclick.data.pending_result import explain_await
from aaiclick.data.runtime.execute import read_batches, read_literal, read_table
from aaiclick.data.runtime.tables import Shape

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import polars as pl
    from rich.table import Table as RichTable

PREVIEW_ROWS = 10


@check_methods
class ReaderMethods(ABC):
    """Reader methods of Object; all return rows in order."""

    @property
    @abstractmethod
    def relation(self) -> Relation: ...

    @property
    @abstractmethod
    def shape(self) -> Shape: ...

    @abstractmethod
    def _open_context(self) -> DataContext: ...

    @abstractmethod
    async def _record_read(self) -> None: ...

    @explain_await
    async def data(self) -> Any:
        """Read the whole result as Python values.

        A scalar Object returns its value, a column a list, a table a dict of lists.
        """
        table = await self.to_arrow()
        return from_arrow.to_python(table, tuple(self.relation.schema.items()), self.shape)

    @explain_await
    async def rows(self) -> list[dict[str, Any]]:
        """Read the whole result as a list of dicts."""
        columns = from_arrow.to_python(await self.to_arrow(), tuple(self.relation.schema.items()), "table")
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    @explain_await
    async def to_arrow(self) -> pa.Table:
        await self._record_read()
        table, _ = await read_table(self._open_context(), self.relation)
        return table

    @explain_await
    async def to_pandas(self) -> pd.DataFrame:
        return from_arrow.to_pandas(await self.to_arrow())

    @explain_await
    async def to_polars(self) -> pl.DataFrame:
        return from_arrow.to_polars(await self.to_arrow())

    @explain_await
    async def to_numpy(self) -> np.ndarray[Any, Any]:
        """Read a vector for one column, a matrix for several."""
        return from_arrow.to_numpy(await self.to_arrow())

    async def iter_batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Stream Arrow batches in constant memory; leaving the loop cancels the query."""
        stream = read_batches(self._open_context(), self.relation)
        try:
            async for batch in stream:
                if batch.num_rows:
                    yield batch
        finally:
            await stream.aclose()

    @explain_await
    async def count(self) -> int:
        """Count the rows."""
        literal = read_literal(self.relation)
        if literal is not None:
            return literal.num_rows
        counted = Aggregate(self.relation, (), (("n", FunctionCall("len")),))
        table, _ = await read_table(self._open_context(), counted, ordered=False)
        return table.column(0)[0].as_py()

    @overload
    async def export(self, path: Path, *, format: str | None = None, s3: S3Access | None = None) -> Path: ...

    @overload
    async def export(self, path: str, *, format: str | None = None, s3: S3Access | None = None) -> Path | str: ...

    @explain_await
    async def export(
        self,
        path: str | Path,
        *,
        format: str | None = None,  # noqa: A002
        s3: S3Access | None = None,
    ) -> Path | str:
        """Write to a file or to `s3://bucket/key` and return the path.

        Formats are csv, tsv, json, jsonl, parquet, orc, avro and arrow, compressed according to the suffix (`.csv.gz`).
        """
        if str(path).startswith(SCHEME):  # never true for a Path, which collapses the double slash
            return await export_s3(self._open_context(), self.relation, str(path), format, s3)
        return await export_file(self._open_context(), self.relation, path, format)

    @explain_await
    async def show(self, rows: int = PREVIEW_ROWS) -> None:
        """Print the first rows to the terminal."""
        from rich.console import Console

        Console().print(await self.rich(rows))

    @explain_await
    async def rich(self, rows: int = PREVIEW_ROWS) -> RichTable:
        """Return the first rows as a `rich` table."""
        from aaiclick.data.render import rich_table

        return rich_table(await self._read_first_rows(rows), self.relation.schema, rows)

    @explain_await
    async def html(self, rows: int = PREVIEW_ROWS) -> str:
        """Return the first rows as an HTML table."""
        from aaiclick.data.render import html_table

        return html_table(await self._read_first_rows(rows), self.relation.schema, rows)

    def _repr_html_(self) -> str:
        """Notebook display of the schema. Rows need `await obj.html()`, since the event loop of the cell is running."""
        from aaiclick.data.render import html_schema

        return html_schema(self.relation.schema, repr(self))

    async def _read_first_rows(self, rows: int) -> list[list[Any]]:
        table, columns = await read_table(self._open_context(), Slice(self.relation, 0, rows + 1))
        return [from_arrow.column_values(table.column(i), dtype) for i, (_, dtype) in enumerate(columns)]
