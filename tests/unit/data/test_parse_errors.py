"""Error messages for files that cannot be parsed."""

import pytest

from aaiclick.data.io.parse_errors import summarise_parse_error

NESTED = (
    "ClickHouse refused the query: The table structure cannot be extracted from a CSVWithNames format file. Error:\n"
    "Code: 117. DB::Exception: Rows have different amount of values."
)
VALUE = """ClickHouse refused the query: Cannot parse input: expected ',' before: 'foo,y\\n': (at row 2)
:
Row 1:
Column 0,   name: a, type: Int64,  parsed text: "1"
Column 1,   name: b, type: String, parsed text: "x"

Row 2:
Column 0,   name: a b, type: Int64,  ERROR: text "foo,y<LINE FEED>" is not like Int64

: While executing ParallelParsingBlockInputFormat."""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (NESTED, "Rows have different amount of values"),
        (VALUE, "row 2, column 'a b': \"foo,y\" is not like Int64"),
        ("ClickHouse refused the query: Cannot read all data: (at row 7)\n", "row 7: Cannot read all data"),
        ("ClickHouse refused the query: Unknown codec: While executing Avro.", "Unknown codec"),
        ("", ""),
    ],
)
def test_error_message_names_row_and_column(message, expected):
    assert summarise_parse_error(message) == expected
