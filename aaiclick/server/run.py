"""Running the server, and how it stops."""

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

from aaiclick.orchestration.structured import json_handler
from aaiclick.server.app import create_app
from aaiclick.server.http_protocol import LimitedProtocol
from aaiclick.server.service import Service
from aaiclick.settings import Settings
from aaiclick.targets import PostgresTarget

GRACE_SECONDS = 10
HEADERS_BYTES = 64_000
MAX_CONNECTIONS = 4_000
NUMBER_DIGITS = 640
"""Longest whole number in JSON: reading one takes time that grows with the square of its length."""


async def serve(settings: Settings, postgres: PostgresTarget, opened: socket.socket, *, auth: bool = True) -> None:
    """Serve until SIGTERM or SIGINT; requests that run then are finished, streams are ended."""
    sys.set_int_max_str_digits(NUMBER_DIGITS)
    service = Service(settings, postgres, auth=auth)
    config = uvicorn.Config(
        create_app(service),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        http=LimitedProtocol,
        limit_concurrency=MAX_CONNECTIONS,
        ws="none",
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=HEADERS_BYTES,
    )
    server = _Server(config, service)
    gc.collect()
    gc.freeze()  # a full collection on the event loop does not visit what was imported: it takes 100 ms
    await server.serve(sockets=[opened])
    if service.failure is not None:
        raise service.failure


class _Server(uvicorn.Server):
    """Tells streams to end as soon as a signal comes: uvicorn waits for them otherwise."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, self._stop)
        try:
            yield
        finally:
            for sign in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(sign)

    def _stop(self) -> None:
        self.force_exit = self.should_exit  # the second signal does not wait
        self.should_exit = True
        self._service.close_streams()


def log_to_stderr() -> None:
    handler = json_handler(sys.stderr)
    ours = logging.getLogger("aaiclick.server")
    ours.setLevel(logging.INFO)
    ours.addHandler(handler)
    ours.propagate = False
    logging.getLogger("uvicorn.error").addHandler(handler)
