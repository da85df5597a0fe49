"""Generations that are kept as Parquet files, under a prefix on the disk of ClickHouse or in S3.

An update writes one new file, by a name that no other attempt has, and the registry's pointer
(`dataset_versions.files`) says which files are the generation: it changes in the transaction that holds the lease and
the generation. What lies under the prefix besides (files of attempts that died, files that were replaced) is never
read.

ClickHouse reads and writes them itself, by `file()` and `s3()`; each file is named, so one that is missing is an error
and not fewer rows. Keys to S3 are those of the process that asks, and parameters of its request: they are not in the
text of the query, and ClickHouse hides them where it writes them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aaiclick.catalog.errors import DatasetError
from aaiclick.data.context import DataContext
from aaiclick.data.s3 import KEY, SCHEME, SECRET, TOKEN, S3Access, S3Object
from aaiclick.data.types import quote_name, quote_text
from aaiclick.errors import AaiclickError

MOST_FILES = 64
"""Appended files that are read one beside the other; the next update makes one of them all."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a generation: its name under the prefix, the slice that it holds ('': no slices), and its rows."""

    name: str
    slice: str
    rows: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> File:
        return cls(data["name"], data["slice"], data["rows"])


def is_prefix(location: str) -> bool:
    """Whether a generation is kept in files of ours."""
    return location.endswith("/")


def is_foreign(location: str) -> bool:
    """Whether a generation is what another program writes: a prefix with a glob behind it."""
    return location.startswith(("/", SCHEME)) and not is_prefix(location)


def in_files(location: str) -> bool:
    """Whether a generation is kept in files, of ours or of another writer; else in a table."""
    return is_prefix(location) or is_foreign(location)


def function_of(
    location: str, name: str, columns: Sequence[tuple[str, str]] | None, file_format: str = "Parquet"
) -> str:
    """The table function of ClickHouse for one file, or for those that a glob matches."""
    given = [quote_text(location + name)]
    if is_s3 := (location + name).startswith(SCHEME):
        access = S3Access.from_environment()
        given = [quote_text(S3Object.parse(location + name).url(access).replace("%2A", "*"))]
        given += [KEY, SECRET] if access.access_key else ["NOSIGN"]
        given += [TOKEN] if access.access_key and access.session_token else []
    given.append(quote_text(file_format))
    if columns is not None:
        given.append(quote_text(", ".join(f"{quote_name(column)} {kind}" for column, kind in columns)))
    return f"{'s3' if is_s3 else 'file'}({', '.join(given)})"


def select_of(
    location: str, files: Sequence[File], columns: Sequence[tuple[str, str]], newest_of: Sequence[str], version: str
) -> str:
    """A SELECT of the columns of files; with `newest_of`, the newest row of each of these keys."""
    names = ", ".join(quote_name(name) for name, _ in columns)
    stored = [*columns, (version, "UInt64")] if newest_of else list(columns)
    if not files:
        structure = quote_text(", ".join(f"{quote_name(column)} {kind}" for column, kind in columns))
        return f"SELECT {names} FROM null({structure})"  # noqa: S608  (quoted, as everywhere here)
    rows = rows_of(location, files, stored)
    if not newest_of:
        return rows
    keys = ", ".join(quote_name(each) for each in newest_of)
    return f"SELECT {names} FROM ({rows}) ORDER BY {version} DESC LIMIT 1 BY {keys}"  # noqa: S608


def rows_of(location: str, files: Sequence[File], stored: Sequence[tuple[str, str]]) -> str:
    """A SELECT of everything that files hold."""
    names = ", ".join(quote_name(name) for name, _ in stored)
    return " UNION ALL ".join(
        f"SELECT {names} FROM {function_of(location, each.name, stored)}"  # noqa: S608
        for each in files
    )


async def write(
    context: DataContext, location: str, name: str, select: str, columns: Sequence[tuple[str, str]]
) -> None:
    """Write the rows of a SELECT into a new file."""
    target = function_of(location, name, columns)
    try:
        await context.client.run(f"INSERT INTO FUNCTION {target} {select}", query_id=context.query_id())
    except AaiclickError as error:
        raise DatasetError(f"{location}{name} could not be written. {error.what}", remedy=error.remedy) from None
