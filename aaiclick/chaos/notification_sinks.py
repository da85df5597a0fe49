"""Receivers of the notifications of a run: an HTTP server, and an SMTP server if aiosmtpd is installed.

Every organisation has a rule that sends each incident to all channels. Accepted messages are recorded in the history.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from email import message_from_bytes, policy
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.chaos.history import record_event
from aaiclick.store.engine.notification_rules import Channel, Rule, set_channel, set_rule

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

MESSAGES = "messages"
"""File of the messages that the receivers have accepted."""
WEBHOOK, EMAIL = "chaos-webhook", "chaos-email"
HOST = "127.0.0.1"
INCIDENT_LINK = re.compile(r"/incidents/(\d+)")
ACCEPTED = b"HTTP/1.1 204 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class NotificationSinks:
    """The receivers; they are always reachable, unlike the databases."""

    def __init__(self, history: Path) -> None:
        self._history = history
        self._servers: dict[str, asyncio.Server] = {}

    @property
    def channels(self) -> list[str]:
        return list(self._servers)

    async def start(self) -> None:
        self._servers[WEBHOOK] = await asyncio.start_server(self._receive_webhook, HOST, 0)
        if find_spec("aiosmtpd") is not None:
            smtp: Any = import_module("aiosmtpd.smtp")
            loop = asyncio.get_running_loop()
            self._servers[EMAIL] = await loop.create_server(lambda: smtp.SMTP(self, loop=loop), HOST, 0)

    async def stop(self) -> None:
        for server in self._servers.values():
            server.close()

    async def set_rules(self, connection: Connection, orgs: Sequence[UUID]) -> None:
        """Send every incident of the organisations to all channels."""
        for org_id in orgs:
            for name, server in self._servers.items():
                port = server.sockets[0].getsockname()[1]
                if name == WEBHOOK:
                    channel = Channel(org_id, name, "webhook", {"url": f"http://{HOST}:{port}/"})
                else:
                    config = {"host": HOST, "port": port, "tls": "none", "sender": "a@test.test", "to": ["b@test.test"]}
                    channel = Channel(org_id, name, "email", config)
                await set_channel(connection, channel)
            await set_rule(connection, org_id, Rule("all", tuple(self._servers)))

    async def _receive_webhook(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.split("content-length:")[1].split("\r\n")[0])
            message: dict[str, Any] = json.loads(await reader.readexactly(length))
            self._record(WEBHOOK, message["delivery"], [incident["incident_id"] for incident in message["incidents"]])
            writer.write(ACCEPTED)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the sender was killed
        finally:
            writer.close()

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802  (aiosmtpd's name)
        mail = message_from_bytes(envelope.content, policy=policy.default)
        text = mail.get_content()  # pyright: ignore[reportAttributeAccessIssue]
        self._record(EMAIL, str(mail["Message-ID"]).strip("<>").partition("@")[0], INCIDENT_LINK.findall(text))
        return "250 OK"

    def _record(self, channel: str, delivery: str, incidents: Sequence[str]) -> None:
        ids = sorted({int(incident) for incident in incidents})
        record_event(self._history, MESSAGES, channel=channel, delivery=int(delivery), incidents=ids)
