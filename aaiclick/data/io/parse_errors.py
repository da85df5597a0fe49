"""Short descriptions of ClickHouse's parse errors."""

from __future__ import annotations

import re

PREFIX = "ClickHouse refused the query: "
ROW = re.compile(r"\(at row (\d+)\)")
VALUE = re.compile(r"name: (?P<name>.+?), type: (?P<kind>.+?),\s*ERROR: (?P<wrong>.+)")
DECORATION = re.compile(r"\s*:?\s*(?:\(at row \d+\)|While (?:executing|reading|parsing)).*", re.DOTALL)


def summarise_parse_error(message: str) -> str:
    """Return row, column and value of a parse error if the message has them, else its first sentence."""
    row, value = ROW.search(message), VALUE.search(message)
    if value is not None:
        where = f"row {row[1]}, " if row else ""
        problem = value["wrong"].replace("<LINE FEED>", "").removeprefix("text ")
        return f"{where}column {value['name']!r}: {problem}"
    sentence = message.removeprefix(PREFIX).rpartition("DB::Exception: ")[2].strip()
    plain = DECORATION.sub("", sentence).partition("\n")[0].rstrip(" .:")
    return f"row {row[1]}: {plain}" if row else plain
