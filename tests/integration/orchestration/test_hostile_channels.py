"""Channels with hostile receivers, addresses and settings: deliveries end, and delay nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from aaiclick.api.notifications import ChannelRequest
from aaiclick.errors import DeliveryError
from aaiclick.operations.notifications import make_test_message
from aaiclick.orchestration.notifications import channel_sender
from aaiclick.orchestration.notifications.channel_sender import ChannelSettings, deliver
from aaiclick.settings import get_settings
from aaiclick.store.engine.notification_rules import Channel
from aaiclick.store.enums import DEFAULT_ORG_ID
from tests.integration.notification_sinks import HttpSink, smtp_server

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def local_addresses(monkeypatch) -> None:
    monkeypatch.setenv("AAICLICK_PRIVATE_HOSTS", "127.0.0.1,localhost")
    get_settings.cache_clear()


@asynccontextmanager
async def serve(handler: Handler) -> AsyncIterator[int]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def send(channel_type: Any, config: dict[str, Any]) -> None:
    channel = Channel(DEFAULT_ORG_ID, "ops", channel_type, config)
    await deliver(channel, ChannelSettings(config), make_test_message("default", "ops"))


def mail_config(port: int, **settings: Any) -> dict[str, Any]:
    addresses = {"sender": "aaiclick@example.org", "to": ["ada@example.org"]}
    return {"host": "localhost", "port": port, "tls": "none", **addresses, **settings}


async def until_no_thread(prefix: str) -> None:
    async with asyncio.timeout(10):
        while any(thread.name.startswith(prefix) for thread in threading.enumerate()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("tls", ["none", "tls", "starttls"])
async def test_slow_mail_server_keeps_no_thread(monkeypatch, tls: str) -> None:
    """It sends a byte now and then, so that no single read takes too long."""
    monkeypatch.setattr(channel_sender, "TIMEOUT_SECONDS", 0.25)

    ended = asyncio.Event()

    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(b"\x16" if tls == "tls" else b"2")
                await writer.drain()
                await asyncio.sleep(0.02)
        finally:
            ended.set()

    async with serve(drip) as port:
        with pytest.raises(DeliveryError, match=r"did not (answer in time|accept)"):
            await send("email", mail_config(port, tls=tls))
        async with asyncio.timeout(10):
            await ended.wait()
        await until_no_thread("smtp")


async def test_endless_reply_of_a_mail_server_is_ended() -> None:
    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"220-welcome\r\n" * 1_000)
            await writer.drain()

    async with serve(flood) as port:
        with pytest.raises(DeliveryError, match="more than 100,000 bytes"):
            await send("email", mail_config(port))
    await until_no_thread("smtp")


async def test_deliveries_do_not_wait_for_threads_of_others() -> None:
    release = threading.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    blocked = asyncio.get_running_loop().run_in_executor(None, release.wait)
    try:
        async with smtp_server() as (handler, port), HttpSink().serve() as sink, asyncio.timeout(10):
            await send("email", mail_config(port))
            await send("webhook", {"url": f"http://localhost:{sink.port}/"})
            assert (len(handler.mails), len(sink.requests)) == (1, 1)
    finally:
        release.set()
        await blocked


@pytest.mark.parametrize(
    ("channel_type", "config"),
    [
        ("email", {"username": "jürgen", "password": "x"}),
        ("email", {"username": "ada", "password": "pässword"}),
        ("slack", {"url": "no address"}),
        ("slack", {"url": "http://["}),
        ("slack", {"url": "http://127.0.0.1:99999/"}),
        ("slack", {"url": "http://127.0.0.1:1/\r\nX: y"}),
        ("slack", {"url": "file:///etc/passwd"}),
        ("slack", {"url": "http://ada:secret@127.0.0.1:1/"}),
        ("slack", {"url": ""}),
        ("slack", {"url": "http://exa mple.org/"}),
        ("slack", {"url": "http://[::1%25lo]:1/"}),
        ("slack", {"url": "http://\x00/"}),
        ("pagerduty", {"url": "http://127.0.0.1:1/", "routing_key": "x"}),
    ],
)
async def test_unusable_settings_are_failed_deliveries(channel_type: str, config: dict[str, Any]) -> None:
    async with smtp_server() as (_, port):
        with pytest.raises(DeliveryError) as refused:
            await send(channel_type, mail_config(port, **config) if channel_type == "email" else config)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    ["a[b@example.org", "(a@example.org", "a@[127.0.0.1", "a:b@x.org", "a;b@x.org", "\x01@x.org", "a\x00b@x.org",
     "a@x.org\r\nBcc: b@x.org", "a@x y", "a@", "@x.org", "a@b@c.org", "<a@x.org>", "a@-x.org", "a@x.org\n", "\\@x.org"],
)  # fmt: skip
def test_address_that_is_no_plain_mail_address_is_refused(address: str) -> None:
    for settings in ({"to": [address]}, {"sender": address}):
        with pytest.raises(ValidationError):
            ChannelRequest(type="email", config=mail_config(25, **settings))


async def test_endless_headers_of_a_receiver_are_ended(monkeypatch) -> None:
    sent = 0

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X: %s\r\n" % (b"y" * 4_000) * 10)
            sent += 40_000
            await writer.drain()

    monkeypatch.setattr(channel_sender, "TIMEOUT_SECONDS", 1.0)
    async with serve(flood) as port:
        with pytest.raises(DeliveryError):
            await send("webhook", {"url": f"http://127.0.0.1:{port}/"})
    assert sent < 20_000_000
