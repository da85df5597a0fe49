"""How the command line puts long things into short ones."""

from __future__ import annotations

import pytest

from aaiclick.cli.database import first_line
from aaiclick.cli.output import print_records

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


@pytest.mark.parametrize("terminal", [True, False])
def test_what_would_turn_or_move_the_text_of_a_table_is_shown_instead(terminal: bool, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    print_records([{"name": "in\u202evoice\x1b[2J é", "state": "ok"}], "table")
    said = capsys.readouterr().out
    assert "in\\u202evoice\\x1b[2J é" in said
    assert "\u202e" not in said
    assert "\x1b[2J" not in said
