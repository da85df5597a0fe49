"""Run the HTTP server with uvicorn, and stop it gracefully."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn

from aaiclick.orchestration.json_logging import make_json_handler
from aaiclick.server.app import create_app
from aaiclick.server.app_state import AppState
from aaiclick.server.connection_time_limits import LimitedProtocol
from aaiclick.server.listen_address import TlsFiles
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.settings import Settings

GRACE_SECONDS = 10
HEADERS_BYTES = 64_000
MAX_CONNECTIONS = 4_000
NUMBER_DIGITS = 640
"""Maximum digits of an integer in JSON: parsing time grows with the square of its length."""


async def serve(
    settings: Settings,
    postgres: PostgresEndpoint,
    opened: socket.socket,
    *,
    auth: bool = True,
    tls: TlsFiles | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; running requests are finished, event streams are closed."""
    sys.set_int_max_str_digits(NUMBER_DIGITS)
    app_state = AppState(settings, postgres, auth=auth)
    config = uvicorn.Config(
        create_app(app_state),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        http=LimitedProtocol,
        limit_concurrency=MAX_CONNECTIONS,
        ws="none",
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=HEADERS_BYTES,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else str(tls.key),
    )
    server = StreamClosingServer(config, app_state)
    gc.collect()
    gc.freeze()  # garbage collections skip imported objects: visiting them blocks the event loop for 100 ms
    await server.serve(sockets=[opened])
    if app_state.failure is not None:
        raise app_state.failure


class StreamClosingServer(uvicorn.Server):
    """Closes event streams on the first signal: uvicorn would wait for them."""

    def __init__(self, config: uvicorn.Config, app_state: AppState) -> None:
        super().__init__(config)
        self._app_state = app_state

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signal_number, self._stop)
        try:
            yield
        finally:
            for signal_number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(signal_number)

    def _stop(self) -> None:
        self.force_exit = self.should_exit  # a second signal does not wait
        self.should_exit = True
        self._app_state.close_streams()


def log_to_stderr() -> None:
    handler = make_json_handler(sys.stderr)
    logger = logging.getLogger("aaiclick.server")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    logger.propagate = False
    logging.getLogger("uvicorn.error").addHandler(handler)
