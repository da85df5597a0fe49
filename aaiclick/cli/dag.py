"""`aaiclick dag`: check, compare, deploy and roll back DAGs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aaiclick.catalog import deploy as deploys
from aaiclick.catalog.dags.diff import DagDiff
from aaiclick.catalog.dags.load import load_dag_file
from aaiclick.cli.database import moment, with_database
from aaiclick.cli.output import note, output_option, print_records
from aaiclick.store import catalog_dags
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

FILE = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def dag() -> None:
    """Check, compare, deploy and roll back DAGs."""


@dag.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate(files: tuple[Path, ...]) -> None:
    """Check DAG files; needs no database."""
    for file in files:
        found = load_dag_file(file)
        note(f"{file} is a DAG: {found.name}, {len(found.jobs)} jobs.")


@dag.command()
@FILE
@output_option
def diff(file: Path, output: str) -> None:
    """Show what a deploy of a file would change."""
    text = _checked(file)
    found = with_database(lambda connection: deploys.compare(connection, text, str(file)))
    if found.is_empty:
        note("Nothing would change.")
    print_records(_changes(found), output)


@dag.command()
@FILE
@output_option
def deploy(file: Path, output: str) -> None:
    """Deploy a file: a new version, serving at once."""
    text = _checked(file)
    done = with_database(lambda connection: deploys.deploy(connection, text, str(file)))
    print_records(_changes(done.diff), output)
    short = done.version_hash[:12]
    if not done.changed:
        note(f"Version {short} serves already; nothing was changed.")
        return
    note(f"Version {short} serves. New generations: {', '.join(done.built) or 'none, all data is kept'}.")


@dag.command()
@click.argument("name", required=False)
@output_option
def versions(name: str | None, output: str) -> None:
    """List the versions of a DAG, or of all."""

    async def work(connection: Connection) -> list[asyncpg.Record]:
        return await catalog_dags.list_versions(connection, DEFAULT_ORG_ID, name)

    print_records(
        [
            {
                "dag": row["dag_name"],
                "version": row["yaml_hash"][:12],
                "created": moment(row["created_at"]),
                "serves since": moment(row["serving_since"]),
            }
            for row in with_database(work)
        ],
        output,
    )


@dag.command()
@click.argument("name")
@click.option("--to", metavar="HASH", help="The version to go back to; by default the one before.")
@output_option
def rollback(name: str, to: str | None, output: str) -> None:
    """Let an older version serve again."""
    done = with_database(lambda connection: deploys.roll_back(connection, name, to))
    print_records(_changes(done.diff), output)
    note(f"Version {done.version_hash[:12]} of {name} serves.")


def _checked(file: Path) -> str:
    """The text of a file that loads; its errors are told before a database is asked for."""
    load_dag_file(file)
    return file.read_text(encoding="utf-8-sig")


def _changes(found: DagDiff) -> list[dict[str, Any]]:
    """A diff as lines: one per job, field and dataset."""
    lines = [("job", name, "added", "") for name in found.added]
    lines += [("job", name, "removed", "") for name in found.removed]
    for name, fields in [*found.changed.items(), ("", found.dag_fields)]:
        for each in fields:
            what = f"{_short(each.before)} → {_short(each.after)}"
            lines.append(("job" if name else "dag", name, each.field, what))
    for each in found.rebuilt:
        why = "" if each.why == "new" else f"because of {', '.join(each.because_of)}"
        lines.append(("dataset", each.dataset, "new" if each.why == "new" else "rebuilt", why))
    lines += [("dataset", name, "no longer made", "") for name in found.dropped]
    return [{"what": what, "name": name, "change": change, "detail": detail} for what, name, change, detail in lines]


def _short(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else text[:59] + "…"
