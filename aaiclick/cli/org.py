"""`aaiclick org`: manage organisations, for operators."""

from __future__ import annotations

import re

import click

from aaiclick.api.field_types import parse_fields
from aaiclick.api.tenancy import CreateOrgRequest, Org, UpdateOrgRequest
from aaiclick.api.workers import LimitsRequest
from aaiclick.cli.database import format_time
from aaiclick.cli.limit_options import limit_options
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import Row, output_option, print_message, print_model, print_models
from aaiclick.cli.param_types import NAME

SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")


def _check_slug(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    if SLUG.fullmatch(text) is None:
        raise click.BadParameter("use lower-case letters, digits, '-' and '_', starting with a letter or a digit.")
    return text


new_slug_argument = click.argument("slug", callback=_check_slug)


@click.group()
def org() -> None:
    """List, create and limit organisations.

    \b
    aaiclick org ls
    aaiclick org create shop
    """


@org.command("ls")
@output_option
def list_orgs(output: str) -> None:
    """List organisations."""
    with open_operations() as operations:
        print_models(operations.list_orgs(), output, _table_row)


@org.command("create")
@new_slug_argument
@click.option("--name", type=NAME, default=None, help="Display name [default: SLUG].")
@limit_options
@output_option
def create_org(slug: str, name: str | None, limits: LimitsRequest, output: str) -> None:
    """Create an organisation."""
    new_org = parse_fields(CreateOrgRequest, limits.model_dump() | {"slug": slug, "name": name or slug})
    with open_operations() as operations:
        print_model(operations.create_org(new_org), output, _table_row)
    print_message(f"Create its first API key with: aaiclick key create --org {slug} --scope admin NAME")


@org.command("set")
@click.argument("slug")
@click.option("--name", type=NAME, default=None, help="Display name [default: unchanged].")
@limit_options
@output_option
def update_org(slug: str, name: str | None, limits: LimitsRequest, output: str) -> None:
    """Set the weight and limits of an organisation; limits that are not given are removed."""
    changes = parse_fields(UpdateOrgRequest, limits.model_dump() | {"name": name})
    with open_operations() as operations:
        print_model(operations.update_org(slug, changes), output, _table_row)


@org.command("pause")
@click.argument("slug")
def pause_org(slug: str) -> None:
    """Pause an organisation: no further tasks start."""
    with open_operations() as operations:
        operations.pause_org(slug)
    print_message(f"Organisation {slug!r} paused. Resume it with: aaiclick org resume {slug}")


@org.command("resume")
@click.argument("slug")
def resume_org(slug: str) -> None:
    """Resume a paused organisation."""
    with open_operations() as operations:
        operations.resume_org(slug)
    print_message(f"Organisation {slug!r} resumed.")


def _table_row(org: Org) -> Row:
    return {
        "slug": org.slug,
        "name": org.name,
        "id": str(org.id),
        "weight": org.weight,
        "max_running": org.max_running,
        "rate": org.rate_per_second,
        "burst": org.rate_burst,
        "paused": format_time(org.paused_at),
        "created": format_time(org.created_at),
    }
