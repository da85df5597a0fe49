"""`aaiclick server`: the HTTP API in the foreground."""

from __future__ import annotations

from socket import socket

import click

from aaiclick.cli.output import note
from aaiclick.local import find_postgres
from aaiclick.settings import PostgresTarget, Settings, get_settings


@click.group()
def server() -> None:
    """Serve the HTTP API."""


@server.command()
@click.option("--host", default=None, help="Address to listen at. [AAICLICK_SERVER_HOST]")
@click.option("--port", type=click.IntRange(0, 65535), default=None, help="0: any free one. [AAICLICK_SERVER_PORT]")
@click.option("--no-auth", is_flag=True, help="Let everybody on this machine do everything. Loopback only.")
def start(host: str | None, port: int | None, no_auth: bool) -> None:
    """Serve the HTTP API until Ctrl-C."""
    import uvloop

    from aaiclick.server.run import log_to_stderr, open_socket

    settings = get_settings()
    chosen = settings.server_port if port is None else port
    with open_socket(host or settings.server_host, chosen, auth=not no_auth) as opened:
        target = find_postgres(settings)
        log_to_stderr()
        uvloop.run(_serve(settings, target, opened, auth=not no_auth))


async def _serve(settings: Settings, target: PostgresTarget, opened: socket, *, auth: bool) -> None:
    from aaiclick.server.run import serve, url_of
    from aaiclick.store.engine import connect
    from aaiclick.store.keys import create_first_key
    from aaiclick.store.migrate import prepare

    await prepare(target, embedded=settings.postgres is None)
    if auth:
        connection = await connect(target)
        try:
            first = await create_first_key(connection)
        finally:
            await connection.close()
        if first is not None:
            note(f"The first admin key, shown this once: {first.text}")
    note(f"aaiclick serves at {url_of(opened)}" + ("." if auth else " WITHOUT authentication."))
    await serve(settings, target, opened, auth=auth)
