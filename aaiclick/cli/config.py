"""`aaiclick config`: settings with value and source, and the URLs of the databases."""

from __future__ import annotations

import importlib
import shlex

import click

from aaiclick.cli.output import output_option, print_records
from aaiclick.errors import SettingsError
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.settings import Settings, describe_settings, get_settings


@click.command()
@click.option("--urls", is_flag=True, help="Print the URLs of both databases, including passwords, for a shell.")
@output_option
def config(urls: bool, output: str) -> None:
    """List every setting with its value and source. Secrets are hidden, except with --urls."""
    if urls:
        _print_urls(get_settings(), output)
        return
    records = [
        {"name": line.name, "value": line.value, "source": line.source, "meaning": line.meaning}
        for line in describe_settings(get_settings())
    ]
    print_records(records, output)


def _print_urls(settings: Settings, output: str) -> None:
    """Print assignments for `eval`; they are not exported, so that `aaiclick` keeps its own settings."""
    if settings.server is not None:
        raise SettingsError(
            "AAICLICK_SERVER is set, and a server does not expose the URLs of its databases.",
            remedy="Unset AAICLICK_SERVER on a machine with access to the databases.",
        )
    endpoints: tuple[PostgresEndpoint, ClickHouseEndpoint] = importlib.import_module("aaiclick.local").find_both(
        settings
    )
    postgres, clickhouse = endpoints
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
