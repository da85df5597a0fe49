"""HTTP/1.1 connections with time limits that uvicorn does not have.

A client has HEADER_SECONDS to send the head of a request, from the opening of the connection or from the first byte
after a response. A body that the application did not read is discarded for at most DRAIN_SECONDS after the response,
so that the client can read the response; then the connection is closed.
"""

from __future__ import annotations

import asyncio
import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
DRAIN_SECONDS = 2.0

_TIMEOUT = json.dumps(
    {
        "type": "urn:aaiclick:problem:too_slow",
        "title": "Request Timeout",
        "status": 408,
        "code": "too_slow",
        "detail": "The head of the request did not arrive in time.",
    }
).encode()


class LimitedProtocol(H11Protocol):
    """One connection."""

    _limit_handle: asyncio.TimerHandle | None = None
    _is_draining = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._limit(HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unlimit()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if self._is_draining:
                self._unlimit()
            if self._limit_handle is None:
                self._limit(HEADER_SECONDS)
        elif self.conn.our_state is not h11.DONE:
            self._unlimit()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._unlimit()
            self._limit(DRAIN_SECONDS)
            self._is_draining = True

    def _limit(self, seconds: float) -> None:
        self._limit_handle = self.loop.call_later(seconds, self._time_out)

    def _unlimit(self) -> None:
        if self._limit_handle is not None:
            self._limit_handle.cancel()
            self._limit_handle = None
        self._is_draining = False

    def _time_out(self) -> None:
        self._limit_handle = None
        if self.transport.is_closing():
            return
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            headers = [(b"content-type", b"application/problem+json"), (b"connection", b"close")]
            for event in (
                h11.Response(status_code=408, headers=headers, reason=b"Request Timeout"),
                h11.Data(data=_TIMEOUT),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
