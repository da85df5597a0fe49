"""Reader of CSV and TSV files: cells are read as text and converted to the types of the columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from aaiclick.data.errors import IngestError
from aaiclick.data.io.byte_streams import UTF8, OpenFile, detect_encoding
from aaiclick.data.io.csv_dialect import CsvOptions, choose_dialect
from aaiclick.data.io.file_readers import FileReader
from aaiclick.data.io.json_reader import infer_json_column, parse_json_column
from aaiclick.data.io.text_type_inference import convert_text, infer_text_type
from aaiclick.data.types import STRING, DataType

SAMPLE_BYTES = 1 << 20
SAMPLE_ROWS = 50_000
"""Rows, of those in the sample, from which types are inferred."""

BLOCK_BYTES = 8 << 20
_COLUMN = re.compile(r"^In CSV column #(\d+): ")


class CsvReader(FileReader):
    """The dialect and the types are chosen from the first megabyte."""

    is_text: ClassVar[bool] = True

    def __init__(self, path: Path, compression: str | None, options: CsvOptions, *, is_tsv: bool) -> None:
        self._path = path
        self._compression = compression
        sample, encoding = self._read_sample(options)
        self.dialect = choose_dialect(sample.decode(errors="replace"), options, encoding, is_tsv=is_tsv)
        texts = pa.Table.from_batches(self._parse(pa.BufferReader(sample)), self._schema())
        self.columns = tuple(
            (name, self._infer_type(name, texts.column(position)).as_nullable())
            for position, name in enumerate(self.dialect.columns)
        )
        self.note = self.dialect.describe()

    def _read_sample(self, options: CsvOptions) -> tuple[bytes, str]:
        encoding = options.encoding
        if encoding is None:
            with OpenFile(self._path, self._compression) as file:
                encoding = detect_encoding(file.read_sample(4))
        with OpenFile(self._path, self._compression, encoding) as file:
            sample = file.read_sample(SAMPLE_BYTES)
        if len(sample) >= SAMPLE_BYTES:
            sample = sample[: sample.rfind(b"\n") + 1] or sample
        return sample, encoding

    def _infer_type(self, name: str, texts: pa.ChunkedArray) -> DataType:
        if name in self.dialect.quoted:
            return STRING
        texts = texts.slice(0, SAMPLE_ROWS)
        array = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], pa.string())
        array = self._empty_as_null(array)
        return infer_json_column(array) or infer_text_type(array, self.dialect.rules)

    def iter_tables(self, columns: Mapping[str, DataType]) -> Iterator[pa.Table]:
        row = 0
        with OpenFile(self._path, self._compression, self.dialect.encoding) as file:
            for batch in self._parse(file.stream):
                arrays = {
                    name: self._convert(name, batch.column(i), columns[name], row)
                    for i, name in enumerate(self.dialect.columns)
                }
                yield pa.table(arrays)
                row += batch.num_rows

    def _convert(self, name: str, texts: pa.Array, dtype: DataType, row: int) -> pa.Array:
        if dtype.is_structure or dtype.logical == "json":
            return parse_json_column(name, texts, dtype, row)
        present = texts if dtype.is_string else self._empty_as_null(texts)
        return convert_text(name, present, dtype, self.dialect.rules, row)

    def _empty_as_null(self, texts: pa.Array) -> pa.Array:
        """Replace quoted empty texts by NULL, which they are in columns of numbers; others are NULL already."""
        return pc.if_else(pc.match_substring_regex(texts, "^$"), None, texts) if "" in self.dialect.null else texts

    def _schema(self) -> pa.Schema:
        """Return the schema of the cells, named by their positions, since names are not checked yet."""
        return pa.schema([(str(position), pa.string()) for position in range(len(self.dialect.columns))])

    def _parse(self, source: object) -> Iterator[pa.RecordBatch]:
        """Yield the cells as text; NULL where a cell has one of the texts for NULL and is not quoted."""
        dialect = self.dialect
        positions = self._schema().names
        try:
            reader = csv.open_csv(
                source,
                read_options=csv.ReadOptions(
                    use_threads=False,
                    block_size=BLOCK_BYTES,
                    skip_rows=dialect.skip_rows,
                    skip_rows_after_names=int(dialect.has_header),
                    column_names=positions,
                ),
                parse_options=csv.ParseOptions(
                    delimiter=dialect.separator,
                    quote_char=dialect.quote,
                    newlines_in_values=True,
                    ignore_empty_lines=len(positions) > 1,
                ),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(positions, pa.string()),
                    null_values=list(dialect.null),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            yield from reader
        except pa.ArrowInvalid as error:
            raise self._explain(str(error)) from None

    def _explain(self, message: str) -> IngestError:
        match = _COLUMN.match(message)
        if match is None:
            return IngestError(message, remedy="Repair the file, or pass csv=CsvOptions(…).")
        name = self.dialect.columns[int(match.group(1))]
        if "invalid UTF8" in message:
            return IngestError(
                f"column {name!r} is not {UTF8.upper()} text",
                remedy='Name the encoding, for example csv=CsvOptions(encoding="latin-1").',
            )
        return IngestError(f"column {name!r}: {message[match.end() :]}")
