"""What is wrong with a file, in a sentence, out of what ClickHouse said of it."""

from __future__ import annotations

import re

PREFIX = "ClickHouse refused the query: "
ROW = re.compile(r"\(at row (\d+)\)")
VALUE = re.compile(r"name: (?P<name>.+?), type: (?P<kind>.+?),\s*ERROR: (?P<wrong>.+)")
DECORATION = re.compile(r"\s*:?\s*(?:\(at row \d+\)|While (?:executing|reading|parsing)).*", re.DOTALL)


def what_is_wrong(said: str) -> str:
    """The row, the column and the value where ClickHouse names them, and its own sentence alone where it does not."""
    row, value = ROW.search(said), VALUE.search(said)
    if value is not None:
        where = f"row {row[1]}, " if row else ""
        wrong = value["wrong"].replace("<LINE FEED>", "").removeprefix("text ")
        return f"{where}column {value['name']!r}: {wrong}"
    sentence = said.removeprefix(PREFIX).rpartition("DB::Exception: ")[2].strip()
    plain = DECORATION.sub("", sentence).partition("\n")[0].rstrip(" .:")
    return f"row {row[1]}: {plain}" if row else plain
