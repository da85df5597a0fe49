"""`aaiclick dlq`: list, redrive and discard dead letters."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from aaiclick.api.dead_letters import DeadLetter, DeadLetterGroup, DeadLetterSelection, RedriveRequest
from aaiclick.cli.database import error_headline, format_time
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import Row, output_option, print_message, print_models
from aaiclick.cli.param_types import TASK_ID, Number
from aaiclick.cli.remote import PAGE_SIZE
from aaiclick.errors import NotFoundError
from aaiclick.store.engine.retry_and_redrive import BATCH_SIZE

if TYPE_CHECKING:
    from aaiclick.client.endpoints import SyncEndpoints

NO_DEAD_LETTERS = "No dead letters found."


@click.group()
def dlq() -> None:
    """List, redrive and discard dead letters.

    \b
    aaiclick dlq ls
    aaiclick dlq redrive --type send_mail
    """


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
        with open_operations() as operations:
            groups = operations.group_dead_letters()
        print_models(groups, output, _group_row, empty_message=NO_DEAD_LETTERS)
        return
    with open_operations() as operations:
        listing = operations.list_dead_letters(type=task_type, fingerprint=fingerprint, limit=min(limit, PAGE_SIZE))
        letters = list(islice(listing, limit))
    print_models(letters, output, _table_row, empty_message=NO_DEAD_LETTERS)


def selection_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add ids, --all, --type and --fingerprint to a command, which receives them as a DeadLetterSelection."""

    @click.argument("task_ids", type=TASK_ID, nargs=-1)
    @click.option("--all", "everything", is_flag=True, help="All dead letters.")
    @click.option("--type", "task_type", default=None, help="All dead letters of this type.")
    @click.option("--fingerprint", default=None, help="All dead letters with this error.")
    @wraps(function)
    def command(
        task_ids: tuple[int, ...], everything: bool, task_type: str | None, fingerprint: str | None, **options: object
    ) -> None:
        has_filter = bool(task_ids or task_type or fingerprint)
        if not has_filter and not everything:
            raise click.UsageError("Give ids, or --all, --type or --fingerprint.")
        if has_filter and everything:
            raise click.UsageError("--all cannot be combined with ids, --type or --fingerprint.")
        ids = list(task_ids) or None
        selection = DeadLetterSelection(ids=ids, type=task_type, fingerprint=fingerprint, all=everything)
        function(selection, **options)

    return command


@dlq.command("redrive")
@selection_options
@click.option("--rate", type=Number(0.001, 100_000), default=None, help="Maximum tasks per second.")
def redrive_dead_letters(selection: DeadLetterSelection, rate: float | None) -> None:
    """Run dead letters again, by id, type or error."""
    count = 0
    with open_operations() as operations:
        _refuse_others(operations, selection)
        while True:
            request = RedriveRequest(**selection.model_dump(), per_second=rate, first_position=count)
            changed = operations.redrive_dead_letters(request).count
            count += changed
            if changed < BATCH_SIZE:  # an operation changes at most one batch
                break
    print_message(f"{count} tasks redriven.")


@dlq.command("discard")
@selection_options
def discard_dead_letters(selection: DeadLetterSelection) -> None:
    """Discard dead letters, by id, type or error: they count as failed for good."""
    count = 0
    with open_operations() as operations:
        _refuse_others(operations, selection)
        while True:
            changed = operations.discard_dead_letters(selection).count
            count += changed
            if changed < BATCH_SIZE:  # an operation changes at most one batch
                break
    print_message(f"{count} tasks discarded.")


def _refuse_others(operations: SyncEndpoints, selection: DeadLetterSelection) -> None:
    """Raise NotFoundError unless all given ids are dead letters."""
    missing = [str(task_id) for task_id in selection.ids or () if not _is_dead(operations, task_id)]
    if missing:
        raise NotFoundError(
            f"Not dead letters: {', '.join(missing)}. Nothing was changed.", remedy="'aaiclick dlq ls' lists them."
        )


def _is_dead(operations: SyncEndpoints, task_id: int) -> bool:
    try:
        return operations.get_task(task_id).status == "DEAD_LETTER"
    except NotFoundError:
        return False


def _refuse_with_group(*names: str) -> None:
    """Refuse options that select dead letters together with --group, which counts all of them."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} cannot be combined with --group.")


def _table_row(letter: DeadLetter) -> Row:
    return {
        "id": str(letter.id),
        "type": letter.type,
        "failures": letter.failures,
        "dead since": format_time(letter.completed_at),
        "fingerprint": letter.error_fingerprint,
        "error": error_headline(letter.error),
    }


def _group_row(group: DeadLetterGroup) -> Row:
    return {
        "fingerprint": group.fingerprint,
        "count": group.count,
        "first": format_time(group.first),
        "last": format_time(group.last),
        "example": str(group.example),
        "error": error_headline(group.error),
    }
