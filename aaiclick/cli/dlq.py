"""`aaiclick dlq`: list, redrive and discard dead letters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from aaiclick.api.dead_letters import DeadLetterSelection, RedriveRequest
from aaiclick.cli import remote
from aaiclick.cli.audit import write_audit
from aaiclick.cli.database import error_headline, format_time
from aaiclick.cli.output import Row, output_option, print_message, print_rows, select_fields
from aaiclick.cli.param_types import ID, Number
from aaiclick.cli.remote import call_local_or_remote
from aaiclick.client import requests
from aaiclick.errors import NotFoundError
from aaiclick.store.engine import control, queries
from aaiclick.store.engine.retry import BATCH_SIZE
from aaiclick.store.enums import TaskStatus

if TYPE_CHECKING:
    from uuid import UUID

    from aaiclick.client import Client
    from aaiclick.store.connections import Connection

PAGE_SIZE = 1_000
JSON_FIELDS = ("id", "job_id", "type", "queue", "failures", "completed_at", "error_fingerprint", "error")
NO_DEAD_LETTERS = "No dead letters found."
AUDIT_TARGET = "dead letters"
"""Target in the audit log. The change is too large for one transaction, so the audit entry is written first."""


@click.group()
def dlq() -> None:
    """List, redrive and discard dead letters."""


@dlq.command("ls")
@click.option("--type", "task_type", default=None, help="Only tasks of this type.")
@click.option("--fingerprint", default=None, help="Only tasks with this error.")
@click.option("--group", is_flag=True, help="Group by error.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Maximum number of rows.")
@output_option
def list_dead_letters(task_type: str | None, fingerprint: str | None, group: bool, limit: int, output: str) -> None:
    """List dead letters, newest first."""
    if group:
        _refuse_with_group("task_type", "fingerprint", "limit")
        groups = call_local_or_remote(_load_groups, _load_groups_remote)
        print_rows(groups, output, _group_row, _group_json, empty_message=NO_DEAD_LETTERS)
        return

    async def list_local(connection: Connection) -> list[Row]:
        letters = await queries.list_dead_letters(connection, type=task_type, fingerprint=fingerprint, limit=limit)
        return [dict(letter) for letter in letters]

    def list_remote(client: Client) -> list[Row]:
        return remote.dump_rows(
            client.list_dead_letters(type=task_type, fingerprint=fingerprint, limit=min(limit, PAGE_SIZE)), limit
        )

    print_rows(
        call_local_or_remote(list_local, list_remote),
        output,
        _table_row,
        lambda row: select_fields(row, JSON_FIELDS),
        empty_message=NO_DEAD_LETTERS,
    )


@dataclass(frozen=True)
class DeadLetterOptions:
    """Dead letters that a command applies to."""

    task_ids: tuple[int, ...]
    everything: bool
    task_type: str | None
    fingerprint: str | None

    def __post_init__(self) -> None:
        if not (self.task_ids or self.everything or self.task_type or self.fingerprint):
            raise click.UsageError("Give ids, or --all, --type or --fingerprint.")
        if self.everything and (self.task_ids or self.task_type or self.fingerprint):
            raise click.UsageError("--all cannot be combined with ids, --type or --fingerprint.")

    async def in_the_database(self, connection: Connection) -> dict[UUID, int]:
        """Count the selected dead letters per organisation; raises NotFoundError if a given id is none."""
        named_rows = await queries.count_dead_letters_by_org(connection, task_ids=self.task_ids)
        self._refuse_others({task_id for row in named_rows for task_id in row["ids"]})
        return {
            row["org_id"]: row["count"] for row in await queries.count_dead_letters_by_org(connection, **self.chosen)
        }

    @property
    def chosen(self) -> dict[str, Any]:
        return {"task_ids": self.task_ids or None, "type": self.task_type, "fingerprint": self.fingerprint}

    def detail(self, count: int) -> dict[str, Any]:
        """Return the details of the audit entry."""
        id_count = len(self.task_ids) or None
        return {"type": self.task_type, "fingerprint": self.fingerprint, "named": id_count, "tasks": count}

    def for_a_server(self, client: Client) -> dict[str, object]:
        self._refuse_others({task_id for task_id in self.task_ids if _is_dead(client, task_id)})
        ids = [str(task_id) for task_id in self.task_ids] or None
        return {"ids": ids, "type": self.task_type, "fingerprint": self.fingerprint, "all": self.everything}

    def _refuse_others(self, dead: set[int]) -> None:
        """Raise NotFoundError unless all given ids are dead letters."""
        missing = [str(task_id) for task_id in self.task_ids if task_id not in dead]
        if missing:
            raise NotFoundError(
                f"Not dead letters: {', '.join(missing)}. Nothing was changed.",
                remedy="'aaiclick dlq ls' lists them.",
            )


def selection_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add ids, --all, --type and --fingerprint to a command, which receives them as DeadLetterOptions."""

    @click.argument("task_ids", type=ID, nargs=-1)
    @click.option("--all", "everything", is_flag=True, help="All dead letters.")
    @click.option("--type", "task_type", default=None, help="All dead letters of this type.")
    @click.option("--fingerprint", default=None, help="All dead letters with this error.")
    @wraps(function)
    def command(
        task_ids: tuple[int, ...], everything: bool, task_type: str | None, fingerprint: str | None, **options: Any
    ) -> None:
        function(DeadLetterOptions(task_ids, everything, task_type, fingerprint), **options)

    return command


@dlq.command("redrive")
@selection_options
@click.option("--rate", type=Number(0.001, 100_000), default=None, help="Maximum tasks per second.")
def redrive_dead_letters(choice: DeadLetterOptions, rate: float | None) -> None:
    """Run dead letters again, by id, type or error."""

    async def redrive_local(connection: Connection) -> int:
        redriven = position = 0
        for org_id, count in (await choice.in_the_database(connection)).items():
            await write_audit(connection, org_id, "dead_letters.redrive", AUDIT_TARGET, choice.detail(count))
            redriven += len(
                await control.redrive_dead_letters(
                    connection, **choice.chosen, org_id=org_id, per_second=rate, first_position=position, limit=None
                )
            )
            position += count
        return redriven

    def redrive_remote(client: Client) -> int:
        chosen = choice.for_a_server(client)
        if rate is None:
            return _repeat_batches(lambda: client.redrive_dead_letters(RedriveRequest.model_validate(chosen)).count)
        count = client.redrive_dead_letters(RedriveRequest.model_validate({**chosen, "per_second": rate})).count
        if count >= BATCH_SIZE:
            print_message("There may be more. Repeat the command when these have started.")
        return count

    print_message(f"{call_local_or_remote(redrive_local, redrive_remote)} tasks redriven.")


@dlq.command("discard")
@selection_options
def discard_dead_letters(choice: DeadLetterOptions) -> None:
    """Discard dead letters, by id, type or error: they count as failed for good."""

    async def discard_local(connection: Connection) -> int:
        discarded = 0
        for org_id, count in (await choice.in_the_database(connection)).items():
            await write_audit(connection, org_id, "dead_letters.discard", AUDIT_TARGET, choice.detail(count))
            discarded += len(await control.discard_dead_letters(connection, **choice.chosen, org_id=org_id, limit=None))
        return discarded

    def discard_remote(client: Client) -> int:
        chosen = choice.for_a_server(client)
        return _repeat_batches(lambda: client.discard_dead_letters(DeadLetterSelection.model_validate(chosen)).count)

    print_message(f"{call_local_or_remote(discard_local, discard_remote)} tasks discarded.")


def _is_dead(client: Client, task_id: int) -> bool:
    try:
        return client.get_task(task_id).status == TaskStatus.DEAD_LETTER
    except NotFoundError:
        return False


def _repeat_batches(change_batch: Callable[[], int]) -> int:
    """Repeat a change until a batch is not full: the server limits the size of a batch."""
    total = count = change_batch()
    while count >= BATCH_SIZE:
        count = change_batch()
        total += count
    return total


def _refuse_with_group(*names: str) -> None:
    """Refuse options that select dead letters together with --group, which counts all of them."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} cannot be combined with --group.")


async def _load_groups(connection: Connection) -> list[Row]:
    groups = await queries.group_dead_letters(connection)
    return [dict(group) | {"fingerprint": group["error_fingerprint"]} for group in groups]


def _load_groups_remote(client: Client) -> list[Row]:
    return remote.parse_rows(client.call(requests.get("/v1/dead-letters/groups")))


def _table_row(row: Row) -> Row:
    return {
        "id": str(row["id"]),
        "type": row["type"],
        "failures": row["failures"],
        "dead since": format_time(row["completed_at"]),
        "fingerprint": row["error_fingerprint"],
        "error": error_headline(row["error"]),
    }


def _group_json(row: Row) -> Row:
    return select_fields(row, ("fingerprint", "count", "first", "last", "type", "error")) | {
        "example": str(row["example"])
    }


def _group_row(row: Row) -> Row:
    return {
        "fingerprint": row["fingerprint"],
        "count": row["count"],
        "first": format_time(row["first"]),
        "last": format_time(row["last"]),
        "example": str(row["example"]),
        "error": error_headline(row["error"]),
    }
