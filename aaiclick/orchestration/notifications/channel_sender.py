"""Sends a message to a channel, with the secrets that its settings name.

Only public addresses are contacted, and AAICLICK_PRIVATE_HOSTS. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import aiohttp

from aaiclick.data.io.ssrf import check_url, guarded_session
from aaiclick.errors import AaiclickError, DeliveryError
from aaiclick.orchestration.notifications import payloads
from aaiclick.orchestration.notifications.smtp import send_email
from aaiclick.orchestration.secret_redaction import Redactor
from aaiclick.server_addresses import origin_of
from aaiclick.store.tenancy.secrets import Secret, find_secret, wrong_host_error

if TYPE_CHECKING:
    from aaiclick.orchestration.notifications.messages import Message
    from aaiclick.store.engine.notification_rules import Channel
    from aaiclick.store.postgres_connections import Connection

PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
TIMEOUT_SECONDS = 15.0
MAX_ANSWER_BYTES = 500


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """Settings of a channel with its secrets filled in."""

    config: Mapping[str, Any] = field(repr=False)
    secrets: tuple[Secret, ...] = ()


async def deliver(
    channel: Channel, settings: ChannelSettings, message: Message, *, quotes_answer: bool | None = None
) -> None:
    """Send a message; raises DeliveryError, without secrets in its text, if the channel did not accept it.

    All readers see the error, so it quotes the answer of a receiver, which may repeat the message, only if the channel
    has no roles and thus receives nothing that is hidden from some readers.
    """
    quotes_answer = not channel.roles if quotes_answer is None else quotes_answer
    redactor = Redactor(secret.value for secret in settings.secrets)
    try:
        async with asyncio.timeout(2 * TIMEOUT_SECONDS):
            await _send(channel, settings.config, settings.secrets, message, quotes_answer)
    except TimeoutError:
        raise DeliveryError(f"The channel {channel.name} did not answer in time.") from None
    except AaiclickError as error:
        raise DeliveryError(redactor.redact(error.what), remedy=error.remedy) from None


async def _send(
    channel: Channel, config: Mapping[str, Any], secrets: Sequence[Secret], message: Message, quotes_answer: bool
) -> None:
    url = None if channel.channel_type == "email" else str(config.get("url") or PAGERDUTY_URL)
    for secret in secrets:  # one with a host is for HTTP: no mail server receives it
        if secret.host is not None and (url is None or origin_of(url) != secret.host):
            raise wrong_host_error(secret)
    if url is None:
        await send_email(config, payloads.render_email(message, config))
        return
    if channel.channel_type == "pagerduty":
        for event in payloads.render_pagerduty(message, str(config["routing_key"])):
            await _post(url, payloads.encode_json(event), {}, quotes_answer)
        return
    render = {"webhook": payloads.render_json, "slack": payloads.render_slack, "teams": payloads.render_teams}
    body = payloads.encode_json(render[channel.channel_type](message))
    headers: dict[str, str] = {}
    if channel.channel_type == "webhook":
        headers["Aaiclick-Delivery"] = message.delivery
        if config.get("secret"):
            headers["Aaiclick-Signature"] = sign_body(str(config["secret"]), body, int(time.time()), message.delivery)
    await _post(url, body, headers, quotes_answer)


def sign_body(secret: str, body: bytes, timestamp: int, delivery: str) -> str:
    """Signature of a webhook, as aaiclick expects it of the webhooks that it receives."""
    signed = b"%d.delivery=%s.%s" % (timestamp, delivery.encode(), body)
    return f"t={timestamp},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


async def _post(url: str, body: bytes, headers: Mapping[str, str], quotes_answer: bool) -> None:
    check_url(url, allow_private=False)
    sent = {"Content-Type": "application/json", "User-Agent": "aaiclick", **headers}
    try:
        async with (
            guarded_session(allow_private=False) as session,
            session.post(
                url, data=body, headers=sent, allow_redirects=False, timeout=aiohttp.ClientTimeout(TIMEOUT_SECONDS)
            ) as response,
        ):
            if response.status // 100 != 2:
                answer = (await response.content.read(MAX_ANSWER_BYTES)).decode(errors="replace")
                quoted = f": {answer}" if quotes_answer else "."
                raise DeliveryError(f"{origin_of(url)} answered with status {response.status}{quoted}")
    except (aiohttp.ClientError, OSError) as error:
        raise DeliveryError(f"{origin_of(url)} could not be reached: {type(error).__name__}.") from None


async def load_settings(connection: Connection, channel: Channel, org: str) -> ChannelSettings:
    """The settings of a channel with each `{"secret": NAME}` replaced; raises SecretError."""
    config: dict[str, Any] = dict(channel.config)
    secrets: list[Secret] = []
    for key, value in config.items():
        if isinstance(value, dict):
            name = str(cast("dict[str, Any]", value)["secret"])
            secrets.append(await find_secret(connection, channel.org_id, org, name))
            config[key] = secrets[-1].value
    return ChannelSettings(config, tuple(secrets))
