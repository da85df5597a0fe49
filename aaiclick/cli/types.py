"""`aaiclick types`: settings that all tasks of a type share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.database import moment, org_id_of
from aaiclick.cli.deeds import do
from aaiclick.cli.key import every_org_option, org_option
from aaiclick.cli.kinds import Number
from aaiclick.cli.output import Row, named, note, output_option, print_rows
from aaiclick.cli.remote import reach
from aaiclick.client import calls
from aaiclick.client.calls import Call
from aaiclick.orchestration.retry import DEFAULT, RetryPolicy
from aaiclick.store import control
from aaiclick.store.types import list_types

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.engine import Connection


@click.group()
def types() -> None:
    """Show, pause and resume types of tasks; set when they are tried again."""


@types.command()
@every_org_option
@output_option
def ls(org: str | None, output: str) -> None:
    """List the types that have settings of their own."""

    async def work(connection: Connection) -> list[Row]:
        org_id = None if org is None else await org_id_of(connection, org)
        rows = [dict(row) for row in await list_types(connection, org_id)]
        return [row | {"retry_policy": row["retry_policy"] and json.loads(row["retry_policy"])} for row in rows]

    def ask(client: Client) -> list[Row]:
        own = remote.own_org(client, org)
        rows = remote.rows(client.call(calls.get("/v1/types")))
        return [row | {"org": own} for row in rows]

    print_rows(reach(work, ask), output, _line, _facts, nothing="No type has settings of its own.")


@types.command()
@click.argument("name")
@click.option("--base-seconds", type=Number(0), help="The wait after the first failure; later ones double.")
@click.option("--cap-seconds", type=Number(0), help="The longest wait.")
@click.option("--default", "reset", is_flag=True, help="Wait as long as all other types again.")
@org_option
def retry(name: str, base_seconds: float | None, cap_seconds: float | None, reset: bool, org: str) -> None:
    """Set how long tasks of a type wait before they are tried again."""
    if reset == (base_seconds is not None or cap_seconds is not None):
        raise click.UsageError("Give --base-seconds, --cap-seconds or both; or --default alone.")
    given = {"base_seconds": base_seconds, "cap_seconds": cap_seconds}
    policy = RetryPolicy.of(json.dumps({key: value for key, value in given.items() if value is not None}))
    text = None if reset else policy.to_json()
    body = {"retry_policy": text and json.loads(text)}

    do(
        org,
        "type.retry",
        name,
        lambda connection, name, org_id: control.set_retry_policy(connection, name, text, org_id),
        lambda client: client.call(Call("PUT", calls.named("types", name), body=body)),
        {} if reset else body,
    )
    note(f"Tasks of type {name!r} are tried again {_words(DEFAULT if reset else policy)}.")


@types.command()
@click.argument("name")
@org_option
def pause(name: str, org: str) -> None:
    """Let nothing more of a type begin."""

    call = calls.post(calls.named("types", name, "pause"))
    do(org, "type.pause", name, control.pause_type, lambda client: client.call(call))
    note(f"Type {name!r} is paused: aaiclick types resume {name}")


@types.command()
@click.argument("name")
@org_option
def resume(name: str, org: str) -> None:
    """Let a paused type go on."""

    call = calls.post(calls.named("types", name, "resume"))
    do(org, "type.resume", name, control.resume_type, lambda client: client.call(call))
    note(f"Type {name!r} goes on.")


def _facts(row: Row) -> Row:
    return named(row, ("org", "name", "retry_policy", "paused_at"))


def _line(row: Row) -> Row:
    policy = row["retry_policy"]
    words = "" if policy is None else _words(RetryPolicy(**policy))
    return {"org": row["org"], "type": row["name"], "retry": words, "paused": moment(row["paused_at"])}


def _words(policy: RetryPolicy) -> str:
    return f"after {policy.delay_seconds(1, luck=0):g} s, doubling up to {policy.cap_seconds:g} s"
