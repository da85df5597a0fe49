"""docs/internals/names.md, parsed: each section with its rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "internals" / "names.md"


@dataclass(frozen=True)
class Row:
    """One row: the document's names, ours, and the note."""

    document: tuple[str, ...]
    ours: tuple[str, ...]
    note: str
    text: str

    def __str__(self) -> str:
        return self.text


def read_rows(section: str) -> list[Row]:
    """Rows of a section; a section without rows is an error, so that a renamed one is noticed."""
    body = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in body.splitlines() if line.startswith("|")][2:]
    assert lines, section
    return [_row(line) for line in lines]


def _row(line: str) -> Row:
    document, ours, note = (cell.strip() for cell in line.strip("|").split("|"))
    return Row(_names(document), _names(ours), note, line)


def _names(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell))
