"""E-mail over SMTP by the standard library, in a thread, to an address that was checked."""

from __future__ import annotations

import asyncio
import logging
import smtplib
import socket
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any

from aaiclick.data.io.ssrf import PublicResolver
from aaiclick.errors import DeliveryError

DEFAULT_PORTS = {"starttls": 587, "tls": 465, "none": 25}
TIMEOUT_SECONDS = 15.0

_logger = logging.getLogger(__name__)


class _CheckedSMTP(smtplib.SMTP):
    """Connects to a checked address of the host, so that no second look-up can yield another."""

    def __init__(self, host: str, address: tuple[str, int], context: ssl.SSLContext | None) -> None:
        self._address = address
        self._implicit_tls = context
        super().__init__(host, address[1], timeout=TIMEOUT_SECONDS)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:  # noqa: ARG002  (the signature)
        connected = socket.create_connection(self._address, timeout)
        return (
            connected if self._implicit_tls is None else self._implicit_tls.wrap_socket(connected, server_hostname=host)
        )


async def send_email(config: Mapping[str, Any], mail: EmailMessage) -> None:
    """Send an e-mail; raises DeliveryError, or ForbiddenAddressError for a host that is not public."""
    tls = config.get("tls", "starttls")
    port = int(config.get("port") or DEFAULT_PORTS[tls])
    resolver = PublicResolver()
    resolved = await resolver.resolve(str(config["host"]), port, socket.AF_UNSPEC)
    await asyncio.to_thread(_send, config, mail, (resolved[0]["host"], port), tls)


def _send(config: Mapping[str, Any], mail: EmailMessage, address: tuple[str, int], tls: str) -> None:
    context = ssl.create_default_context() if tls != "none" else None
    host = str(config["host"])
    try:
        with _CheckedSMTP(host, address, context if tls == "tls" else None) as server:
            if tls == "starttls":
                server.starttls(context=context)
            if config.get("username"):
                server.login(str(config["username"]), str(config.get("password") or ""))
            refused = server.send_message(mail)  # raises if all recipients are refused
    except (smtplib.SMTPException, OSError) as error:
        raise DeliveryError(f"The mail server {host}:{address[1]} did not accept the message: {error}") from None
    if refused:
        _logger.warning("The mail server %s refused some recipients: %s", host, ", ".join(sorted(refused)))
