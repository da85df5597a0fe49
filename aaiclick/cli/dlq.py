"""`aaiclick dlq`: tasks that failed too often, by what went wrong; their second chance, or their end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from aaiclick.cli import remote
from aaiclick.cli.database import first_line, moment
from aaiclick.cli.ids import ID
from aaiclick.cli.output import note, output_option, print_records
from aaiclick.cli.remote import Row, reach
from aaiclick.client import calls
from aaiclick.errors import NotFoundError
from aaiclick.store import control, reads
from aaiclick.store.revival import AT_ONCE
from aaiclick.store.words import TaskStatus

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

PAGE = 1_000
NOTHING = "There are no such dead letters."


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
        print_records([_kind(row) for row in found], output, nothing=NOTHING)
        return

    async def work(connection: Connection) -> list[Row]:
        letters = await reads.list_dead_letters(connection, type=task_type, fingerprint=fingerprint, limit=limit)
        return [dict(each) for each in letters]

    def ask(client: Client) -> list[Row]:
        return remote.rows(client.dead_letters(type=task_type, fingerprint=fingerprint, limit=min(limit, PAGE)), limit)

    print_records(
        [
            {
                "id": str(row["id"]),
                "type": row["type"],
                "attempts": row["failures"],
                "died": moment(row["completed_at"]),
                "fingerprint": row["error_fingerprint"],
                "error": first_line(row["error"]),
            }
            for row in reach(work, ask)
        ],
        output,
        nothing=NOTHING,
    )


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

    async def in_the_database(self, connection: Connection) -> dict[str, Any]:
        found = [await reads.get_task(connection, task_id) for task_id in self.task_ids]
        self._refuse_others(None if row is None else row["status"] for row in found)
        return {"task_ids": self.task_ids or None, "type": self.task_type, "fingerprint": self.fingerprint}

    def for_a_server(self, client: Client) -> dict[str, Any]:
        self._refuse_others(_status(client, task_id) for task_id in self.task_ids)
        ids = [str(task_id) for task_id in self.task_ids] or None
        return {"ids": ids, "type": self.task_type, "fingerprint": self.fingerprint, "all": self.everything}

    def _refuse_others(self, statuses: Iterable[str | None]) -> None:
        """All that are named by their ids have to be dead letters."""
        named = zip(self.task_ids, statuses, strict=True)
        others = [str(task_id) for task_id, status in named if status != TaskStatus.DEAD_LETTER]
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
@click.option("--rate", type=click.FloatRange(0, min_open=True), default=None, help="At most so many a second.")
def redrive(choice: Choice, rate: float | None) -> None:
    """Start dead letters over, by id or by what they have in common."""

    async def work(connection: Connection) -> int:
        chosen = await choice.in_the_database(connection)
        return len(await control.redrive(connection, **chosen, per_second=rate, limit=None))

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
        chosen = await choice.in_the_database(connection)
        return len(await control.discard(connection, **chosen, limit=None))

    def ask(client: Client) -> int:
        chosen = choice.for_a_server(client)
        return _until_none_is_left(lambda: client.discard(**chosen))

    note(f"{reach(work, ask)} tasks have failed for good.")


def _status(client: Client, task_id: int) -> str | None:
    try:
        return client.get_task(task_id)["status"]
    except NotFoundError:
        return None


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
    return [dict(each) for each in await reads.group_dead_letters(connection)]


def _groups_from_server(client: Client) -> list[Row]:
    groups = client.call(calls.get("/v1/dead-letters/groups"))
    return remote.rows(group | {"error_fingerprint": group["fingerprint"]} for group in groups)


def _kind(row: Row) -> dict[str, object]:
    return {
        "fingerprint": row["error_fingerprint"],
        "count": row["count"],
        "first": moment(row["first"]),
        "last": moment(row["last"]),
        "example": str(row["example"]),
        "error": first_line(row["error"]),
    }
