"""E-mail over SMTP by the standard library, to an address that was checked.

Each message has a thread of its own, and one that is given up ends its connection: the limit of time of smtplib is that
of one read, so a mail server that sends a byte now and then would keep a thread that others wait for.
"""

from __future__ import annotations

import asyncio
import logging
import smtplib
import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.message import EmailMessage
from typing import Any, BinaryIO

from aaiclick.data.io.ssrf import PublicResolver
from aaiclick.errors import DeliveryError

DEFAULT_PORTS = {"starttls": 587, "tls": 465, "none": 25}
TIMEOUT_SECONDS = 15.0
MAX_REPLY_BYTES = 100_000
"""Of all replies of a mail server to one message; smtplib keeps the lines of an endless one."""

_logger = logging.getLogger(__name__)


class _Connection:
    """The socket of a message, which another thread can end."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._is_ended = False

    def open(self, address: tuple[str, int], timeout: float) -> socket.socket:
        connected = socket.create_connection(address, timeout)
        self._socket = connected.dup()  # TLS replaces the other one
        if self._is_ended:
            self.end()
        return connected

    def end(self) -> None:
        """Make reads and writes of the connection fail."""
        self._is_ended = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


class _Replies:
    """The replies of a mail server, up to a number of bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = MAX_REPLY_BYTES

    def readline(self, limit: int = -1) -> bytes:
        line = self._file.readline(limit)
        self._left -= len(line)
        if self._left < 0:
            raise OSError(f"it sent more than {MAX_REPLY_BYTES:,} bytes")
        return line

    def close(self) -> None:
        self._file.close()


class _CheckedSMTP(smtplib.SMTP):
    """Connects to a checked address of the host, so that no second look-up can yield another."""

    def __init__(
        self, host: str, address: tuple[str, int], context: ssl.SSLContext | None, connection: _Connection
    ) -> None:
        self._address = address
        self._implicit_tls = context
        self._connection = connection
        super().__init__(host, address[1], timeout=TIMEOUT_SECONDS)

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = _Replies(self.sock.makefile("rb"))
        return super().getreply()

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:  # noqa: ARG002  (the signature)
        connected = self._connection.open(self._address, timeout)
        return (
            connected if self._implicit_tls is None else self._implicit_tls.wrap_socket(connected, server_hostname=host)
        )


async def send_email(config: Mapping[str, Any], mail: EmailMessage) -> None:
    """Send an e-mail; raises DeliveryError, or ForbiddenAddressError for a host that is not public."""
    tls = config.get("tls", "starttls")
    port = int(config.get("port") or DEFAULT_PORTS[tls])
    resolver = PublicResolver()
    resolved = await resolver.resolve(str(config["host"]), port, socket.AF_UNSPEC)
    connection, threads = _Connection(), ThreadPoolExecutor(1, thread_name_prefix="smtp")
    sending = asyncio.get_running_loop().run_in_executor(
        threads, _send, config, mail, (resolved[0]["host"], port), tls, connection
    )
    try:
        await sending
    except asyncio.CancelledError:
        connection.end()
        raise
    finally:
        threads.shutdown(wait=False)


def _send(
    config: Mapping[str, Any], mail: EmailMessage, address: tuple[str, int], tls: str, connection: _Connection
) -> None:
    context = ssl.create_default_context() if tls != "none" else None
    host = str(config["host"])
    try:
        with _CheckedSMTP(host, address, context if tls == "tls" else None, connection) as server:
            if tls == "starttls":
                server.starttls(context=context)
            if config.get("username"):
                server.login(str(config["username"]), str(config.get("password") or ""))
            refused = server.send_message(mail)  # raises if all recipients are refused
    except (smtplib.SMTPException, OSError) as error:
        raise DeliveryError(f"The mail server {host}:{address[1]} did not accept the message: {error}") from None
    except UnicodeError:
        raise DeliveryError(
            f"The mail server {host}:{address[1]} cannot be given the user name, the password or an address: "
            "they have characters outside of ASCII."
        ) from None
    finally:
        connection.close()
    if refused:
        _logger.warning("The mail server %s refused some recipients: %s", host, ", ".join(sorted(refused)))
