"""CSV dialects: the options of users, and the choice of what they leave open from the first rows of a file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from aaiclick.data.errors import IngestError
from aaiclick.data.io.text_type_inference import DATE_TEXT, DATETIME, INSTANT, INTEGER, NUMBER, UUID_TEXT, TextRules

SEPARATORS = (",", ";", "\t", "|")
SNIFFED_ROWS = 1_000
NULL_TEXTS = ("", r"\N")


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    r"""Options of CSV and TSV files; what is None is chosen from the first rows.

    ```python
    CsvOptions(separator=";", decimal=",", encoding="latin-1", date_format="%d.%m.%Y", null=("", "NA"))
    ```
    """

    separator: str | None = None
    header: bool | None = None
    columns: Sequence[str] | None = None
    """Names of the columns, instead of those in the header."""
    quote: str = '"'
    null: Sequence[str] = NULL_TEXTS
    """Unquoted texts that mean NULL."""
    encoding: str | None = None
    decimal: str = "."
    date_format: str | None = None
    datetime_format: str | None = None
    fractions: str = "float"
    """`float`, or `decimal` to read fractions as Decimal."""
    skip_rows: int = 0
    """Lines before the header."""

    def __post_init__(self) -> None:
        for name in ("separator", "quote", "decimal"):
            value = getattr(self, name)
            if value is not None and (len(value) != 1 or not value.isascii() or value in "\r\n"):
                raise IngestError(f"CsvOptions({name}={value!r}) is not one ASCII character.")
        if self.fractions not in ("float", "decimal"):
            raise IngestError(f"CsvOptions(fractions={self.fractions!r}) is unknown.", remedy="Use float or decimal.")
        if self.skip_rows < 0:
            raise IngestError("CsvOptions(skip_rows=) is negative.")
        if self.separator is not None and self.separator in (self.quote, self.decimal):
            raise IngestError("The separator must differ from the quote and from the decimal mark.")


@dataclass(frozen=True)
class CsvDialect:
    """A complete description of how a file is written."""

    separator: str
    quote: str
    has_header: bool
    columns: tuple[str, ...]
    quoted: frozenset[str]
    """Columns with quoted values, which are text."""
    null: tuple[str, ...]
    encoding: str
    skip_rows: int
    rules: TextRules

    def describe(self) -> str:
        parts = [
            f"separator {self.separator!r}",
            "header" if self.has_header else "no header",
            f"quote {self.quote!r}",
            f"encoding {self.encoding}",
            f"NULL {' '.join(map(repr, self.null))}",
        ]
        parts += [f"decimal mark {self.rules.decimal!r}"] if self.rules.decimal != "." else []
        parts += [f"{self.skip_rows} lines skipped"] if self.skip_rows else []
        return ", ".join(parts)


@dataclass(frozen=True)
class _Cell:
    text: str
    is_quoted: bool


def choose_dialect(sample: str, options: CsvOptions, encoding: str, *, is_tsv: bool = False) -> CsvDialect:
    """Choose separator, header and column names from the first rows; raise IngestError if the rows are ragged."""
    lines = sample.split("\n", options.skip_rows)
    text = lines[options.skip_rows] if len(lines) > options.skip_rows else ""
    separator = options.separator or ("\t" if is_tsv else _choose_separator(text, options.quote))
    rows = _split_rows(text, separator, options.quote, SNIFFED_ROWS)
    if not rows:
        raise IngestError("is empty, so it has no columns")
    width = max(len(row) for row in rows)
    has_header = _looks_like_header(rows[0]) if options.header is None else options.header
    columns = _name_columns(rows, width, has_header, options.columns)
    body = rows[1:] if has_header else rows
    quoted = frozenset(
        name
        for position, name in enumerate(columns)
        if any(row[position].is_quoted and _is_text(row[position].text) for row in body if len(row) == width)
    )
    rules = TextRules(options.decimal, options.date_format, options.datetime_format, options.fractions == "decimal")
    return CsvDialect(
        separator, options.quote, has_header, columns, quoted, tuple(options.null), encoding, options.skip_rows, rules
    )


def _choose_separator(text: str, quote: str) -> str:
    """Return the separator by which most rows have the same number of cells, and more than one."""
    best, best_score = ",", (0.0, 0)
    for separator in SEPARATORS:
        widths = [len(row) for row in _split_rows(text, separator, quote, 100)]
        if not widths:
            break
        width, count = Counter(widths).most_common(1)[0]
        score = (count / len(widths), width)
        if width > 1 and score > best_score:
            best, best_score = separator, score
    return best


def _looks_like_header(row: list[_Cell]) -> bool:
    """Whether a first row holds names: no fractions, negative numbers, dates or truth values, and not only integers."""
    plain = [cell.text for cell in row if not cell.is_quoted and cell.text]
    if any(_is_value(text) for text in plain):
        return False
    return not plain or not all(INTEGER.fullmatch(text) for text in plain) or len(plain) < len(row)


def _is_value(text: str) -> bool:
    if INTEGER.fullmatch(text):
        return text.startswith("-")
    patterns = (NUMBER, DATE_TEXT, DATETIME, INSTANT)
    return any(character.isdigit() for character in text) and any(pattern.fullmatch(text) for pattern in patterns)


def _name_columns(
    rows: list[list[_Cell]], width: int, has_header: bool, names: Sequence[str] | None
) -> tuple[str, ...]:
    if names is not None:
        if len(names) != width:
            raise IngestError(f"has {width} columns, but CsvOptions(columns=) names {len(names)}")
        return tuple(names)
    if not has_header:
        return tuple(f"column_{position}" for position in range(1, width + 1))
    header = rows[0]
    if len(header) != width:
        longer = next(number for number, row in enumerate(rows, 1) if len(row) > len(header))
        raise IngestError(
            f"row {longer} has {len(rows[longer - 1])} values, but the header has {len(header)} names",
            remedy="Repair the file, or pass csv=CsvOptions(columns=[…], skip_rows=1, header=False).",
        )
    return tuple(cell.text or f"column_{position}" for position, cell in enumerate(header, 1))


def _is_text(text: str) -> bool:
    """Whether a quoted value is text: no list or dict, which contain commas, no UUID, and not empty.

    pandas writes `""` for NULL in files of one column.
    """
    is_nested = (text[:1], text[-1:]) in (("[", "]"), ("{", "}"))
    return text != "" and not is_nested and UUID_TEXT.fullmatch(text) is None


def _split_rows(text: str, separator: str, quote: str, limit: int) -> list[list[_Cell]]:
    """Split the first complete rows into cells; empty lines are left out."""
    mark, comma = re.escape(quote), re.escape(separator)
    pattern = re.compile(rf"({mark}((?:[^{mark}]|{mark}{mark})*){mark}|[^{comma}\r\n]*)({comma}|\r\n|\n|\r|$)")
    rows: list[list[_Cell]] = []
    row: list[_Cell] = []
    for match in pattern.finditer(text.removeprefix("\ufeff")):
        cell, inside, end = match.group(1), match.group(2), match.group(3)
        if not end and not cell and not row:
            break
        row.append(_Cell(cell if inside is None else inside.replace(quote * 2, quote), inside is not None))
        if end == separator:
            continue
        if row != [_Cell("", False)]:
            rows.append(row)
        row = []
        if len(rows) >= limit or not end:
            break
    return rows
