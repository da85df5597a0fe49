"""The same commands against a server: AAICLICK_SERVER and AAICLICK_API_KEY instead of databases."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from click.core import ParameterSource

from aaiclick.cli.database import with_database
from aaiclick.cli.output import Row, note
from aaiclick.client import calls
from aaiclick.errors import AaiclickError, NotFoundError, SettingsError
from aaiclick.settings import get_settings
from aaiclick.store.words import DEFAULT_ORG_SLUG

if TYPE_CHECKING:
    from aaiclick.client import AsyncClient, Client
    from aaiclick.store.engine import Connection

T = TypeVar("T")

LOOK_SECONDS = 0.2
LINE_SECONDS = 5.0
LOOKED_AT = 100
"""Tasks among which one is sought that could run."""

COMMANDS = {"jobs": "jobs ls", "tasks": "tasks ls JOB", "workers": "workers ls", "orgs": "org ls"}
"""What lists what a request of that name does."""

_LISTED = re.compile(r"GET /v1/(" + "|".join(COMMANDS) + r") lists")

TIMES = ("first", "last", "last_heartbeat", "serving_since")


def reach(local: Callable[[Connection], Awaitable[T]], remote: Callable[[Client], T]) -> T:
    """Ask the server if one is named, else the database."""
    if not is_remote():
        return with_database(local)
    with open_client() as client, in_words_of_commands():
        return remote(client)


@contextmanager
def in_words_of_commands() -> Generator[None]:
    """A server's remedies speak of requests."""
    try:
        yield
    except AaiclickError as error:
        error.remedy = _LISTED.sub(lambda found: f"'aaiclick {COMMANDS[found[1]]}' lists", error.remedy)
        if error.remedy.startswith("Send 'Authorization"):
            error.remedy = "Set AAICLICK_API_KEY to a key of that server."
        raise


def open_client() -> Client:
    """The server that AAICLICK_SERVER names."""
    from aaiclick.client import Client  # heavy: only commands from afar need it

    return Client()


def open_async_client() -> AsyncClient:
    from aaiclick.client import AsyncClient

    return AsyncClient()


def rows(items: Iterable[Row], limit: int | None = None) -> list[Row]:
    """What the API lists, as the database has it: times are times and ids are numbers."""
    return [row(item) for item in islice(items, limit)]


def row(item: Row) -> Row:
    return {name: _value(name, value) for name, value in item.items()}


def times(item: Row) -> Row:
    """The same, with ids as they are: a user's subject may look like one of ours."""
    return {name: value if name.endswith("id") else _value(name, value) for name, value in item.items()}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, str) and (name.endswith("_at") or name in TIMES):
        return datetime.fromisoformat(value)
    is_id = isinstance(value, str) and (name == "id" or name.endswith("_id")) and value.isdecimal()
    return int(value) if is_id else value


def check_org(client: Client, slug: str) -> None:
    """Refuse to take another organisation than the key's for the one that was meant."""
    if is_meant(slug):
        _insist_on(client, slug)


def is_meant(slug: str) -> bool:
    """Whether somebody named this organisation; else it is what the option stands at."""
    context = click.get_current_context(silent=True)
    said = None if context is None else context.get_parameter_source("org")
    return slug != DEFAULT_ORG_SLUG or said is ParameterSource.COMMANDLINE


def _insist_on(client: Client, slug: str) -> None:
    if org_named(client, slug)["id"] != client.whoami()["org_id"]:
        raise SettingsError(
            f"AAICLICK_API_KEY is not a key of the organisation {slug!r}.",
            remedy="From afar the organisation is that of the key: use one of that organisation.",
        )


def of_org(client: Client, slug: str) -> Client:
    """The same client, if its organisation is the one that was meant."""
    check_org(client, slug)
    return client


def own_org(client: Client, meant: str | None) -> str:
    """Slug of the key's organisation, which is the one that was meant if any was."""
    if meant is not None:
        _insist_on(client, meant)
    return client.call(calls.get(calls.named("orgs", client.whoami()["org_id"])))["slug"]


def org_named(client: Client, slug: str) -> Row:
    """An organisation that the key may see."""
    return one_named(client.pages(calls.get("/v1/orgs")), slug, ("slug",), "org")


def one_named(items: Iterable[Row], wanted: str, names: Sequence[str], kind: str) -> Row:
    """The one that is called so, by the first of these names that any has."""
    found = list(items)
    for name in names:
        for each in found:
            if each[name] == wanted:
                return each
    raise NotFoundError(f"There is no {kind} {wanted!r:.120}.", remedy=f"'aaiclick {kind} ls' lists them.")


def is_remote() -> bool:
    return get_settings().server is not None


def watch(client: Client, job_id: int) -> Row:
    """A job when it has ended; says why nothing of it runs, if that lasts, and again when the reason is another."""
    said, looked = "", time.monotonic()
    while True:
        job = client.get_job(job_id)
        if job["status"] in calls.ENDED:
            return row(job)
        if time.monotonic() - looked >= LINE_SECONDS:
            looked = time.monotonic()
            words = _why_nothing_runs(client, job_id)
            if words not in ("", said):
                said = words
                note(words)
        time.sleep(LOOK_SECONDS)


def _why_nothing_runs(client: Client, job_id: int) -> str:
    """What the first task waits for that could run; '' if one runs."""
    for status in ("RUNNING", "CLAIMED"):
        if next(client.tasks(job_id, status=status, limit=1), None) is not None:
            return ""
    pending = islice(client.tasks(job_id, status="PENDING", limit=LOOKED_AT), LOOKED_AT)
    could_run = [task for task in pending if task["readiness"] in ("READY", "TIME", "HELD")]
    if not could_run:
        return ""
    first = min(could_run, key=lambda task: (task["readiness"] == "TIME", int(task["id"])))
    reasons = "; ".join(reason["words"].partition("\n")[0] for reason in client.why(int(first["id"])))
    return f"{first['type']} waits: {reasons}"


def refuse(what: str) -> NoReturn:
    """For what only works where the databases are."""
    raise SettingsError(
        f"{what} needs the databases themselves, and AAICLICK_SERVER names a server instead.",
        remedy="Unset AAICLICK_SERVER where the databases are.",
    )
