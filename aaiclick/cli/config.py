"""`aaiclick config`: every setting, its value and where it came from."""

from __future__ import annotations

import click

from aaiclick.cli.output import output_option, print_records
from aaiclick.settings import describe_settings, get_settings


@click.command()
@output_option
def config(output: str) -> None:
    """List every setting, its value and its source. Secrets are hidden."""
    records = [
        {"name": line.name, "value": line.value, "source": line.source, "meaning": line.meaning}
        for line in describe_settings(get_settings())
    ]
    print_records(records, output)
