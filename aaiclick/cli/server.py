"""`aaiclick server`: run the HTTP API."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from socket import socket

import click

from aaiclick.cli.output import print_message
from aaiclick.local import find_postgres
from aaiclick.missing_modules import SERVER_MODULES, check_installed
from aaiclick.server.listen_address import TlsFiles, open_socket, socket_url
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.settings import Settings, get_settings

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group()
def server() -> None:
    """Serve the HTTP API.

    \b
    aaiclick server start --port 8000
    """


@server.command("start")
@click.option("--host", default=None, help="Address to listen on [default: AAICLICK_SERVER_HOST].")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=None,
    help="Port to listen on; 0: any free port [default: AAICLICK_SERVER_PORT].",
)
@click.option("--no-auth", is_flag=True, help="Disable authentication. Loopback only.")
@click.option("--tls-cert", type=FILE, default=None, help="PEM file with the certificate: serve HTTPS.")
@click.option("--tls-key", type=FILE, default=None, help="PEM file with the private key of --tls-cert.")
@click.option(
    "--inherited", type=int, default=None, hidden=True, help="File descriptor of the socket opened by 'aaiclick up'."
)
def start_server(
    host: str | None,
    port: int | None,
    no_auth: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    inherited: int | None,
) -> None:
    """Serve the HTTP API until Ctrl-C."""
    check_installed(SERVER_MODULES)
    settings = get_settings()
    tls = _tls_files(tls_cert, tls_key)
    if inherited is None:
        chosen_port = settings.server_port if port is None else port
        listener = open_socket(host or settings.server_host, chosen_port, auth=not no_auth)
    else:
        listener = socket(fileno=inherited)
        threading.Thread(target=_end_with_parent, daemon=True).start()
    with listener:
        _run_server(settings, listener, auth=not no_auth, tls=tls)


def _tls_files(certificate: Path | None, key: Path | None) -> TlsFiles | None:
    """Return the files of --tls-cert and --tls-key after checking them."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise click.UsageError("--tls-cert and --tls-key belong together.")
    tls = TlsFiles(certificate, key)
    tls.check()
    return tls


def _run_server(settings: Settings, listener: socket, *, auth: bool, tls: TlsFiles | None) -> None:
    import uvloop

    from aaiclick.server.serve import log_to_stderr  # slow import, after errors of the address

    endpoint = find_postgres(settings)
    log_to_stderr()
    uvloop.run(_prepare_and_serve(settings, endpoint, listener, auth=auth, tls=tls))


def _end_with_parent() -> None:
    """Stop when standard input, a pipe from `aaiclick up`, is closed."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


async def _prepare_and_serve(
    settings: Settings, endpoint: PostgresEndpoint, listener: socket, *, auth: bool, tls: TlsFiles | None
) -> None:
    from aaiclick.server.serve import serve
    from aaiclick.store.migrate import prepare_schema

    await prepare_schema(endpoint, embedded=settings.postgres is None)
    first = await create_first_admin_key(endpoint) if auth else None
    if first is not None:
        print_message(f"First admin API key (shown only once): {first}")
    url = socket_url(listener, "http" if tls is None else "https")
    print_message(f"aaiclick is listening on {url}" + ("." if auth else " WITHOUT authentication."))
    await serve(settings, endpoint, listener, auth=auth, tls=tls)


async def create_first_admin_key(endpoint: PostgresEndpoint) -> str | None:
    """Create an admin API key if none exists."""
    from aaiclick.store.postgres_connections import connect
    from aaiclick.store.tenancy.api_keys import create_first_key

    connection = await connect(endpoint)
    try:
        created = await create_first_key(connection)
    finally:
        await connection.close()
    return None if created is None else created.text
