"""CSV reader and writer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from . import DataType, RecordBatch, Table

class ReadOptions:
    def __init__(
        self,
        *,
        use_threads: bool = True,
        block_size: int | None = None,
        skip_rows: int = 0,
        skip_rows_after_names: int = 0,
        column_names: Sequence[str] | None = None,
    ) -> None: ...

class ParseOptions:
    def __init__(
        self,
        *,
        delimiter: str = ",",
        quote_char: str | bool = '"',
        newlines_in_values: bool = False,
        ignore_empty_lines: bool = True,
    ) -> None: ...

class ConvertOptions:
    def __init__(
        self,
        *,
        column_types: Mapping[str, DataType] | None = None,
        null_values: Sequence[str] | None = None,
        strings_can_be_null: bool = False,
        quoted_strings_can_be_null: bool = True,
    ) -> None: ...

class WriteOptions:
    def __init__(self, *, include_header: bool = True, delimiter: str = ",") -> None: ...

class CSVStreamingReader:
    def __iter__(self) -> Iterator[RecordBatch]: ...

def open_csv(
    input_file: object,
    read_options: ReadOptions | None = None,
    parse_options: ParseOptions | None = None,
    convert_options: ConvertOptions | None = None,
) -> CSVStreamingReader: ...
def read_csv(input_file: BinaryIO) -> Table: ...
def write_csv(data: Table, output_file: object, write_options: WriteOptions | None = None) -> None: ...
