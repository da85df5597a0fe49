"""Tables for terminals."""

import pytest
from rich.cells import cell_len

from aaiclick.cli.table_output import format_table

JOB = {
    "id": "381405937744023552",
    "name": "nightly_report_of_all_orders",
    "status": "FAILED",
    "tasks": "12/12",
    "failed": "1",
    "created": "2026-11-18 11:31:01Z",
    "duration": "0.1 s",
    "why": "ValueError: " + "a long text " * 20,
}
TODAY = "2026-11-18"


def test_table_fits_the_width_and_ids_are_whole():
    lines = format_table([JOB, JOB | {"why": "", "name": "x"}], 80, TODAY)
    assert max(cell_len(line) for line in lines[1:]) <= 80
    assert sum(JOB["id"] in line for line in lines) == 2
    text = " ".join(" ".join(lines).split())
    assert JOB["why"].strip() in text, "nothing is cut"
    assert "  why: ValueError" in "\n".join(lines)


def test_wide_terminal_has_one_line_per_row():
    lines = format_table([JOB], 500, TODAY)
    assert len(lines) == 2
    assert lines[1].endswith("a long text")
    assert "2026-11-18" not in lines[1]
    assert "11:31:01Z" in lines[1]


def test_columns_without_values_are_left_out():
    header, _ = format_table([JOB | {"why": "", "failed": ""}], 200, TODAY)
    assert "why" not in header
    assert "failed" not in header
    assert format_table([{"a": "", "b": ""}], 80, TODAY)[0] == "a"


def test_times_of_other_days_have_their_date():
    assert "11-18 11:31Z" in format_table([JOB], 500, "2026-11-19")[1]


@pytest.mark.parametrize("width", [40, 60, 100])
def test_long_names_are_folded_and_complete(width):
    records = [{"id": "7", "type": "module." * 12, "état": "日本語" * 9}]
    lines = format_table(records, width, TODAY)
    assert max(cell_len(line) for line in lines[1:]) <= width
    assert "".join("".join(lines[1:]).split()).count("日") == 9


def test_states_have_colours_where_they_are_supported():
    line = format_table([{"name": "worker", "state": "failed"}], 80, TODAY, has_colours=True)[1]
    assert line == "worker  \x1b[31mfailed\x1b[0m"
