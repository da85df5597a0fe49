"""`aaiclick dlq`: tasks that failed too often, by what went wrong; their second chance, or their end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from aaiclick.cli import remote
from aaiclick.cli.database import first_line, moment
from aaiclick.cli.deeds import note_deed
from aaiclick.cli.kinds import ID, Number
from aaiclick.cli.output import Row, named, note, output_option, print_rows
from aaiclick.cli.remote import reach
from aaiclick.client import calls
from aaiclick.errors import NotFoundError
from aaiclick.store import control, reads
from aaiclick.store.revival import AT_ONCE
from aaiclick.store.words import TaskStatus

if TYPE_CHECKING:
    from uuid import UUID

    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

PAGE = 1_000
NAMES = ("id", "job_id", "type", "queue", "failures", "completed_at", "error_fingerprint", "error")
NOTHING = "There are no such dead letters."
TARGET = "dead letters"
"""In the audit log. There are too many for one transaction, so the record comes first: no deed is without one."""


@click.group()
def dlq() -> None:
    """List dead letters, give them another chance, or give them up."""


@dlq.command()
@click.option("--type", "task_type", default=None, help="Only of this type.")
@click.option("--fingerprint", default=None, help="Only with this error.")
@click.option("--group", is_flag=True, help="One line for each kind of error.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many to list, at most."
)
@output_option
def ls(task_type: str | None, fingerprint: str | None, group: bool, limit: int, output: str) -> None:
    """List dead letters, newest first."""
    if group:
        _refuse_beside_group("task_type", "fingerprint", "limit")
        found = reach(_groups, _groups_from_server)
        print_rows(found, output, _kind, _kind_facts, nothing=NOTHING)
        return

    async def work(connection: Connection) -> list[Row]:
        letters = await reads.list_dead_letters(connection, type=task_type, fingerprint=fingerprint, limit=limit)
        return [dict(each) for each in letters]

    def ask(client: Client) -> list[Row]:
        return remote.rows(client.dead_letters(type=task_type, fingerprint=fingerprint, limit=min(limit, PAGE)), limit)

    print_rows(reach(work, ask), output, _letter, lambda row: named(row, NAMES), nothing=NOTHING)


@dataclass(frozen=True)
class Choice:
    """Which dead letters a command is about."""

    task_ids: tuple[int, ...]
    everything: bool
    task_type: str | None
    fingerprint: str | None

    def __post_init__(self) -> None:
        if not (self.task_ids or self.everything or self.task_type or self.fingerprint):
            raise click.UsageError("Name ids, or give --all, --type or --fingerprint.")
        if self.everything and (self.task_ids or self.task_type or self.fingerprint):
            raise click.UsageError("--all is all of them: it goes with no id, --type or --fingerprint.")

    async def in_the_database(self, connection: Connection) -> dict[UUID, int]:
        """How many of each organisation."""
        named = await reads.dead_letters_by_org(connection, task_ids=self.task_ids)
        self._refuse_others({task_id for row in named for task_id in row["ids"]})
        return {row["org_id"]: row["count"] for row in await reads.dead_letters_by_org(connection, **self.chosen)}

    @property
    def chosen(self) -> dict[str, Any]:
        return {"task_ids": self.task_ids or None, "type": self.task_type, "fingerprint": self.fingerprint}

    def detail(self, count: int) -> dict[str, Any]:
        """What the audit log says of it."""
        named = len(self.task_ids) or None
        return {"type": self.task_type, "fingerprint": self.fingerprint, "named": named, "tasks": count}

    def for_a_server(self, client: Client) -> dict[str, Any]:
        self._refuse_others({task_id for task_id in self.task_ids if _is_dead(client, task_id)})
        ids = [str(task_id) for task_id in self.task_ids] or None
        return {"ids": ids, "type": self.task_type, "fingerprint": self.fingerprint, "all": self.everything}

    def _refuse_others(self, dead: set[int]) -> None:
        """All that are named by their ids have to be dead letters."""
        others = [str(task_id) for task_id in self.task_ids if task_id not in dead]
        if others:
            raise NotFoundError(
                f"Not among the dead letters: {', '.join(others)}. Nothing was changed.",
                remedy="'aaiclick dlq ls' lists them.",
            )


def choosing(function: Callable[..., None]) -> Callable[..., None]:
    """Ids and options that a command gets as its Choice."""

    @click.argument("task_ids", type=ID, nargs=-1)
    @click.option("--all", "everything", is_flag=True, help="All of them.")
    @click.option("--type", "task_type", default=None, help="All of this type.")
    @click.option("--fingerprint", default=None, help="All with this error.")
    @wraps(function)
    def chosen(
        task_ids: tuple[int, ...], everything: bool, task_type: str | None, fingerprint: str | None, **options: Any
    ) -> None:
        function(Choice(task_ids, everything, task_type, fingerprint), **options)

    return chosen


@dlq.command()
@choosing
@click.option("--rate", type=Number(0.001, 100_000), default=None, help="At most so many a second.")
def redrive(choice: Choice, rate: float | None) -> None:
    """Start dead letters over, by id or by what they have in common."""

    async def work(connection: Connection) -> int:
        back = behind = 0
        for org_id, count in (await choice.in_the_database(connection)).items():
            await note_deed(connection, org_id, "dead_letters.redrive", TARGET, choice.detail(count))
            back += len(
                await control.redrive(
                    connection, **choice.chosen, org_id=org_id, per_second=rate, behind=behind, limit=None
                )
            )
            behind += count
        return back

    def ask(client: Client) -> int:
        chosen = choice.for_a_server(client)
        if rate is None:
            return _until_none_is_left(lambda: client.redrive(**chosen))
        count = client.redrive(**chosen, per_second=rate)
        if count >= AT_ONCE:
            note("There may be more: say it again when these have begun.")
        return count

    note(f"{reach(work, ask)} tasks start over.")


@dlq.command()
@choosing
def discard(choice: Choice) -> None:
    """Give dead letters up, by id or by what they have in common: they have failed for good."""

    async def work(connection: Connection) -> int:
        gone = 0
        for org_id, count in (await choice.in_the_database(connection)).items():
            await note_deed(connection, org_id, "dead_letters.discard", TARGET, choice.detail(count))
            gone += len(await control.discard(connection, **choice.chosen, org_id=org_id, limit=None))
        return gone

    def ask(client: Client) -> int:
        chosen = choice.for_a_server(client)
        return _until_none_is_left(lambda: client.discard(**chosen))

    note(f"{reach(work, ask)} tasks have failed for good.")


def _is_dead(client: Client, task_id: int) -> bool:
    try:
        return client.get_task(task_id)["status"] == TaskStatus.DEAD_LETTER
    except NotFoundError:
        return False


def _until_none_is_left(change: Callable[[], int]) -> int:
    """A server changes so many at a time."""
    total = count = change()
    while count >= AT_ONCE:
        count = change()
        total += count
    return total


def _refuse_beside_group(*names: str) -> None:
    """Groups are of all dead letters: an option that chooses some is not passed over."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} chooses dead letters; --group counts them all.")


async def _groups(connection: Connection) -> list[Row]:
    groups = await reads.group_dead_letters(connection)
    return [dict(group) | {"fingerprint": group["error_fingerprint"]} for group in groups]


def _groups_from_server(client: Client) -> list[Row]:
    return remote.rows(client.call(calls.get("/v1/dead-letters/groups")))


def _letter(row: Row) -> Row:
    return {
        "id": str(row["id"]),
        "type": row["type"],
        "failures": row["failures"],
        "died": moment(row["completed_at"]),
        "fingerprint": row["error_fingerprint"],
        "error": first_line(row["error"]),
    }


def _kind_facts(row: Row) -> Row:
    return named(row, ("fingerprint", "count", "first", "last", "type", "error")) | {"example": str(row["example"])}


def _kind(row: Row) -> Row:
    return {
        "fingerprint": row["fingerprint"],
        "count": row["count"],
        "first": moment(row["first"]),
        "last": moment(row["last"]),
        "example": str(row["example"]),
        "error": first_line(row["error"]),
    }
