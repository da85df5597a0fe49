"""Remote mode of commands: a server (AAICLICK_SERVER, AAICLICK_API_KEY) instead of the databases."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from aaiclick.cli.output import print_message
from aaiclick.cli.waiting_reason_text import describe_waiting, without_countdown
from aaiclick.errors import AaiclickError, SettingsError
from aaiclick.settings import get_settings
from aaiclick.store.enums import DEFAULT_ORG_SLUG

if TYPE_CHECKING:
    from rich.progress import TaskID

    from aaiclick.api.jobs import GroupProgress, Job
    from aaiclick.api.tasks import Task
    from aaiclick.client import Client
    from aaiclick.client.endpoints import SyncEndpoints

PAGE_SIZE = 1_000
POLL_SECONDS = 0.2
MESSAGE_SECONDS = 5.0
MAX_PENDING = 100
"""Pending tasks searched for one that could run."""

LIST_COMMANDS = {"jobs": "jobs ls", "tasks": "tasks ls JOB", "workers": "workers ls", "orgs": "org ls"}
"""Commands that list the same items as a request path."""

_LIST_REMEDY = re.compile(r"GET /v1/(" + "|".join(LIST_COMMANDS) + r") lists")


@contextmanager
def translate_remedies() -> Generator[None]:
    """Replace HTTP requests in remedies with commands."""
    try:
        yield
    except AaiclickError as error:
        error.remedy = _LIST_REMEDY.sub(lambda match: f"'aaiclick {LIST_COMMANDS[match[1]]}' lists", error.remedy)
        if error.remedy.startswith("Send 'Authorization"):
            error.remedy = "Set AAICLICK_API_KEY to a key of that server."
        raise


def open_client() -> Client:
    """Open a client of the server in AAICLICK_SERVER."""
    from aaiclick.client import Client  # slow import, only needed in remote mode

    return Client()


def check_org(client: Client, slug: str) -> None:
    """Raise SettingsError if --org names another organisation than that of the API key."""
    if is_explicit_org(slug):
        _require_key_of_org(client, slug)


def is_explicit_org(slug: str) -> bool:
    """Whether --org was given, rather than its default."""
    context = click.get_current_context(silent=True)
    source = None if context is None else context.get_parameter_source("org")
    return slug != DEFAULT_ORG_SLUG or source is ParameterSource.COMMANDLINE


def _require_key_of_org(client: Client, slug: str) -> None:
    if client.get_org(slug).id != client.whoami().org_id:
        raise SettingsError(
            f"AAICLICK_API_KEY is not a key of organisation {slug!r}.",
            remedy="With a remote server the API key determines the organisation: use a key of that organisation.",
        )


def is_remote() -> bool:
    return get_settings().server is not None


def watch_job(client: SyncEndpoints, job_id: int) -> Job:
    """Wait for a job to finish and return it; show its progress, and why it waits whenever the reason changes."""
    with show_progress() as update:
        return _poll_job(client, job_id, update)


def _poll_job(client: SyncEndpoints, job_id: int, update: Callable[[Sequence[GroupProgress]], None] | None) -> Job:
    printed_reason, checked_at = "", time.monotonic()
    while True:
        job = client.get_job(job_id)
        if update is not None:
            update(client.get_job_progress(job_id))
        if job.completed_at is not None:
            return job
        if time.monotonic() - checked_at >= MESSAGE_SECONDS:
            checked_at = time.monotonic()
            reason = _explain_waiting(client, job_id)
            if without_countdown(reason) not in ("", printed_reason):
                printed_reason = without_countdown(reason)
                print_message(reason)
        time.sleep(POLL_SECONDS)


@contextmanager
def show_progress() -> Generator[Callable[[Sequence[GroupProgress]], None] | None]:
    """Function that updates a progress bar per group; None if standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from aaiclick.cli.progress_bars import make_progress, update_groups  # slow import, only needed on a terminal

    with make_progress() as bars:
        bar_ids: dict[str, TaskID] = {}
        yield lambda groups: update_groups(bars, bar_ids, groups)


def _explain_waiting(client: SyncEndpoints, job_id: int) -> str:
    """Explain why the first runnable task waits; empty if a task is running."""
    if any(next(client.list_tasks(job_id, status=status, limit=1), None) for status in ("RUNNING", "CLAIMED")):
        return ""
    first = find_waiting_task(client, job_id)
    return "" if first is None else describe_waiting(first.type, client.explain_task(first.id), first.error)


def find_waiting_task(client: SyncEndpoints, job_id: int) -> Task | None:
    """Return the first task that waits for something other than its predecessors."""
    pending = islice(client.list_tasks(job_id, status="PENDING", limit=MAX_PENDING), MAX_PENDING)
    could_run = [task for task in pending if task.readiness in ("READY", "TIME", "HELD")]
    return min(could_run, key=lambda task: (task.readiness == "TIME", task.id), default=None)


def refuse_remote(feature: str) -> NoReturn:
    """Raise SettingsError for a feature that needs direct access to the databases."""
    raise SettingsError(
        f"{feature} needs direct access to the databases, but AAICLICK_SERVER is set.",
        remedy="Unset AAICLICK_SERVER on a machine with access to the databases.",
    )
