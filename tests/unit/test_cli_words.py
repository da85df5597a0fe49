"""How the command line puts long things into short ones."""

from __future__ import annotations

import pytest

from aaiclick.cli.database import first_line

TRACE = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
    raise ConversionError("Column 'a' is odd.", remedy="Make it even.")
ConversionError: Column 'a' is odd.
Make it even."""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TRACE, "ConversionError: Column 'a' is odd."),
        ("The job would have 9 tasks.\nRaise the limit.", "The job would have 9 tasks."),
        (None, ""),
    ],
)
def test_an_error_in_a_table_is_what_happened_and_not_the_remedy(error: str | None, line: str) -> None:
    assert first_line(error) == line
