"""Storage of generations as Parquet files, under a prefix on the disk of ClickHouse or in S3.

An update writes one new file with a name that is unique to the attempt. The registry (`dataset_versions.files`) lists
the files of the generation; it changes in the transaction that holds the lease and the generation. Other files under
the prefix (of attempts that died, or replaced ones) are never read.

ClickHouse reads and writes the files with `file()` and `s3()`; each file is named, so a missing file is an error. S3
keys come from the environment of the calling process and are query parameters: they are not part of the query text, and
ClickHouse masks them in its logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aaiclick.catalog.errors import DatasetError
from aaiclick.data.context import DataContext
from aaiclick.data.io.s3_client import KEY, SCHEME, SECRET, TOKEN, S3Access, S3Object
from aaiclick.data.types import quote_name, quote_text
from aaiclick.errors import AaiclickError

MAX_FILES = 64
"""Most appended files of a generation; the next update compacts them into one."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a generation: its name under the prefix, its slice ('' if there are none), and its number of rows."""

    name: str
    slice: str
    rows: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DataFile:
        return cls(data["name"], data["slice"], data["rows"])


def is_own_prefix(location: str) -> bool:
    """Return whether a generation is stored in files that aaiclick writes."""
    return location.endswith("/")


def is_external(location: str) -> bool:
    """Return whether a generation consists of files of another program: a prefix with a glob."""
    return location.startswith(("/", SCHEME)) and not is_own_prefix(location)


def is_file_based(location: str) -> bool:
    """Return whether a generation is stored in files; otherwise in a table."""
    return is_own_prefix(location) or is_external(location)


def table_function(
    location: str, name: str, columns: Sequence[tuple[str, str]] | None, file_format: str = "Parquet"
) -> str:
    """Return the ClickHouse table function for one file, or for the files that a glob matches."""
    arguments = [quote_text(location + name)]
    if is_s3 := (location + name).startswith(SCHEME):
        access = S3Access.from_environment()
        arguments = [quote_text(S3Object.parse(location + name).url(access).replace("%2A", "*"))]
        arguments += [KEY, SECRET] if access.access_key else ["NOSIGN"]
        arguments += [TOKEN] if access.access_key and access.session_token else []
    arguments.append(quote_text(file_format))
    if columns is not None:
        arguments.append(quote_text(", ".join(f"{quote_name(column)} {type_name}" for column, type_name in columns)))
    return f"{'s3' if is_s3 else 'file'}({', '.join(arguments)})"


def build_select(
    location: str, files: Sequence[DataFile], columns: Sequence[tuple[str, str]], newest_of: Sequence[str], version: str
) -> str:
    """Return a SELECT of the columns of files; with `newest_of`, only the newest row of each key."""
    names = ", ".join(quote_name(name) for name, _ in columns)
    stored = [*columns, (version, "UInt64")] if newest_of else list(columns)
    if not files:
        structure = quote_text(", ".join(f"{quote_name(column)} {type_name}" for column, type_name in columns))
        return f"SELECT {names} FROM null({structure})"  # noqa: S608  (quoted, as everywhere here)
    rows = build_rows_select(location, files, stored)
    if not newest_of:
        return rows
    keys = ", ".join(quote_name(key) for key in newest_of)
    return f"SELECT {names} FROM ({rows}) ORDER BY {version} DESC LIMIT 1 BY {keys}"  # noqa: S608


def build_rows_select(location: str, files: Sequence[DataFile], stored: Sequence[tuple[str, str]]) -> str:
    """Return a SELECT of all rows of files."""
    names = ", ".join(quote_name(name) for name, _ in stored)
    return " UNION ALL ".join(
        f"SELECT {names} FROM {table_function(location, file.name, stored)}"  # noqa: S608
        for file in files
    )


async def write_file(
    context: DataContext, location: str, name: str, select: str, columns: Sequence[tuple[str, str]]
) -> None:
    """Write the rows of a SELECT into a new file."""
    target = table_function(location, name, columns)
    try:
        await context.client.run(f"INSERT INTO FUNCTION {target} {select}", query_id=context.query_id())
    except AaiclickError as error:
        raise DatasetError(f"{location}{name} could not be written. {error.what}", remedy=error.remedy) from None
