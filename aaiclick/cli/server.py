"""`aaiclick server`: the HTTP API in the foreground."""

from __future__ import annotations

import os
import signal
import sys
import threading
from socket import socket

import click

from aaiclick.cli.output import note
from aaiclick.local import find_postgres
from aaiclick.server.address import open_socket, url_of
from aaiclick.settings import Settings, get_settings
from aaiclick.targets import PostgresTarget


@click.group()
def server() -> None:
    """Serve the HTTP API."""


@server.command()
@click.option("--host", default=None, help="Address to listen at. [AAICLICK_SERVER_HOST]")
@click.option("--port", type=click.IntRange(0, 65535), default=None, help="0: any free one. [AAICLICK_SERVER_PORT]")
@click.option("--no-auth", is_flag=True, help="Let everybody on this machine do everything. Loopback only.")
@click.option("--inherited", type=int, default=None, hidden=True, help="The socket that 'aaiclick up' opened.")
def start(host: str | None, port: int | None, no_auth: bool, inherited: int | None) -> None:
    """Serve the HTTP API until Ctrl-C."""
    settings = get_settings()
    if inherited is None:
        chosen = settings.server_port if port is None else port
        opened = open_socket(host or settings.server_host, chosen, auth=not no_auth)
    else:
        opened = socket(fileno=inherited)
        threading.Thread(target=_end_with_parent, daemon=True).start()
    with opened:
        _run(settings, opened, auth=not no_auth)


def _run(settings: Settings, opened: socket, *, auth: bool) -> None:
    import uvloop

    from aaiclick.server.run import log_to_stderr  # heavy: an address that cannot be used is said first

    target = find_postgres(settings)
    log_to_stderr()
    uvloop.run(_serve(settings, target, opened, auth=auth))


def _end_with_parent() -> None:
    """Our standard input is a pipe from `aaiclick up`: its end is the end of us, however that one ended."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


async def _serve(settings: Settings, target: PostgresTarget, opened: socket, *, auth: bool) -> None:
    from aaiclick.server.run import serve
    from aaiclick.store.migrate import prepare

    await prepare(target, embedded=settings.postgres is None)
    first = await first_key(target) if auth else None
    if first is not None:
        note(f"The first admin key, shown this once: {first}")
    note(f"aaiclick serves at {url_of(opened)}" + ("." if auth else " WITHOUT authentication."))
    await serve(settings, target, opened, auth=auth)


async def first_key(target: PostgresTarget) -> str | None:
    """An admin key, if there is no key yet."""
    from aaiclick.store.engine import connect
    from aaiclick.store.keys import create_first_key

    connection = await connect(target)
    try:
        made = await create_first_key(connection)
    finally:
        await connection.close()
    return None if made is None else made.text
