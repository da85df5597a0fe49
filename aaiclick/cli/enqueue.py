"""`aaiclick tasks enqueue`: enqueue an item from the command line."""

from __future__ import annotations

import json

import click

from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import output_option, print_record
from aaiclick.cli.param_types import TimeType


@click.command("enqueue")
@click.argument("type", metavar="TYPE")
@click.option("--json", "payload", default=None, metavar="OBJECT", help="The payload as a JSON object.")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="A field of it; VALUE is JSON or plain text.")
@click.option("--entrypoint", help="Import path of the function [default: the handler of the type].")
@click.option("--queue", help="Queue [default: default].")
@click.option("--priority", type=click.IntRange(-32768, 32767), help="Higher ones first [default: 0].")
@click.option("--run-at", type=TimeType(), metavar="TIME", help="Not before this time, such as 2026-01-31T08:00:00Z.")
@click.option("--key", "idempotency_key", help="Idempotency key: an item with it is enqueued once.")
@click.option("--rate", metavar="N/PERIOD", help="At most so many in any period, such as 100/m.")
@click.option("--rate-key", help="Items with the same key share the rate [default: the type].")
@click.option("--debounce", metavar="INTERVAL", help="Wait that long; a later item with its key replaces the payload.")
@click.option("--debounce-key", help="Key of the debounce.")
@click.option("--debounce-merge", is_flag=True, default=None, help="Merge the payloads instead of replacing them.")
@output_option
def enqueue_item(payload: str | None, pairs: tuple[str, ...], output: str, **options: object) -> None:
    """Enqueue an item for the workers that have a handler of its TYPE.

    \b
    aaiclick tasks enqueue email:send --arg to=ada@example.org
    aaiclick tasks enqueue geo --json '{"ip": "192.0.2.1"}' --rate 100/m --rate-key geo-api
    """
    item = {name: value for name, value in options.items() if value is not None}
    with open_operations() as operations:
        [task_id] = operations.enqueue([{**item, "payload": _read_payload(payload, pairs)}]).ids
    print_record({"id": str(task_id), "type": item["type"]}, output)


def _read_payload(text: str | None, pairs: tuple[str, ...]) -> dict[str, object]:
    payload: object = {}
    if text is not None:
        try:
            payload = json.loads(text)
        except ValueError as error:
            raise click.UsageError(f"--json: {error}.") from None
    if not isinstance(payload, dict):
        raise click.UsageError('--json: write an object, such as \'{"to": "ada"}\'.')
    fields: dict[str, object] = dict(payload)  # pyright: ignore[reportUnknownArgumentType]
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--arg {pair!r}: write NAME=VALUE.")
        try:
            fields[name] = json.loads(value)
        except ValueError:
            fields[name] = value
    return fields
