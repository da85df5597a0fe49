"""`aaiclick config`: every setting, its value and where it came from; and where the databases are, if asked."""

from __future__ import annotations

import importlib
import shlex

import click

from aaiclick.cli.output import output_option, print_records
from aaiclick.errors import SettingsError
from aaiclick.settings import Settings, describe_settings, get_settings
from aaiclick.targets import ClickHouseTarget, PostgresTarget


@click.command()
@click.option("--urls", is_flag=True, help="Print the URLs of both databases instead, passwords included, for a shell.")
@output_option
def config(urls: bool, output: str) -> None:
    """List every setting, its value and its source. Secrets are hidden, unless --urls asks for two of them."""
    if urls:
        _print_urls(get_settings(), output)
        return
    records = [
        {"name": line.name, "value": line.value, "source": line.source, "meaning": line.meaning}
        for line in describe_settings(get_settings())
    ]
    print_records(records, output)


def _print_urls(settings: Settings, output: str) -> None:
    """As assignments for `eval`, not exported: `aaiclick` itself goes on to use what it used before."""
    if settings.server is not None:
        raise SettingsError(
            "AAICLICK_SERVER names a server, which does not tell where its databases are.",
            remedy="Unset AAICLICK_SERVER where the databases are.",
        )
    found: tuple[PostgresTarget, ClickHouseTarget] = importlib.import_module("aaiclick.local").find_both(settings)
    postgres, clickhouse = found
    values = {
        "AAICLICK_DATABASE_URL": postgres.dsn,
        "AAICLICK_CLICKHOUSE_URL": clickhouse.url,
        "CLICKHOUSE_QUERY_URL": clickhouse.query_url,
    }
    if output == "json":
        print_records([{"name": name, "value": value} for name, value in values.items()], output)
        return
    for name, value in values.items():
        click.echo(f"{name}={shlex.quote(value)}")
