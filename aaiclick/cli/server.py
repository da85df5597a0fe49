"""`aaiclick server`: run the HTTP API."""

from __future__ import annotations

import os
import signal
import sys
import threading
from socket import socket

import click

from aaiclick.cli.output import print_message
from aaiclick.endpoints import PostgresEndpoint
from aaiclick.local import find_postgres
from aaiclick.server.listen_address import open_socket, socket_url
from aaiclick.settings import Settings, get_settings


@click.group()
def server() -> None:
    """Serve the HTTP API."""


@server.command("start")
@click.option("--host", default=None, help="Address to listen on [default: AAICLICK_SERVER_HOST].")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=None,
    help="Port to listen on; 0: any free port [default: AAICLICK_SERVER_PORT].",
)
@click.option("--no-auth", is_flag=True, help="Disable authentication. Loopback only.")
@click.option(
    "--inherited", type=int, default=None, hidden=True, help="File descriptor of the socket opened by 'aaiclick up'."
)
def start_server(host: str | None, port: int | None, no_auth: bool, inherited: int | None) -> None:
    """Serve the HTTP API until Ctrl-C."""
    settings = get_settings()
    if inherited is None:
        chosen_port = settings.server_port if port is None else port
        listener = open_socket(host or settings.server_host, chosen_port, auth=not no_auth)
    else:
        listener = socket(fileno=inherited)
        threading.Thread(target=_end_with_parent, daemon=True).start()
    with listener:
        _run_server(settings, listener, auth=not no_auth)


def _run_server(settings: Settings, listener: socket, *, auth: bool) -> None:
    import uvloop

    from aaiclick.server.serve import log_to_stderr  # slow import, after errors of the address

    endpoint = find_postgres(settings)
    log_to_stderr()
    uvloop.run(_prepare_and_serve(settings, endpoint, listener, auth=auth))


def _end_with_parent() -> None:
    """Stop when standard input, a pipe from `aaiclick up`, is closed."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


async def _prepare_and_serve(settings: Settings, endpoint: PostgresEndpoint, listener: socket, *, auth: bool) -> None:
    from aaiclick.server.serve import serve
    from aaiclick.store.migrate import prepare_schema

    await prepare_schema(endpoint, embedded=settings.postgres is None)
    first = await create_first_admin_key(endpoint) if auth else None
    if first is not None:
        print_message(f"First admin API key (shown only once): {first}")
    print_message(f"aaiclick is listening on {socket_url(listener)}" + ("." if auth else " WITHOUT authentication."))
    await serve(settings, endpoint, listener, auth=auth)


async def create_first_admin_key(endpoint: PostgresEndpoint) -> str | None:
    """Create an admin API key if none exists."""
    from aaiclick.store.connections import connect
    from aaiclick.store.tenancy.api_keys import create_first_key

    connection = await connect(endpoint)
    try:
        created = await create_first_key(connection)
    finally:
        await connection.close()
    return None if created is None else created.text
