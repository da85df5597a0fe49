"""Webhooks: a signed request starts a source.

The sender signs `TIMESTAMP.BODY` with the secret (HMAC-SHA256) and sends `Aaiclick-Signature: t=TIMESTAMP,v1=HEX`,
the time in seconds since 1970. A request that is too old is refused, and a repeated request starts one run. A sender
that repeats a delivery with a new timestamp names it (`Aaiclick-Delivery: ID`) and signs `TIMESTAMP.delivery=ID.BODY`:
all requests with that id start one run.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.errors import NotFoundError, RequestError, SecretError
from aaiclick.store.catalog import dag_sources
from aaiclick.store.tenancy import orgs, secrets

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

_logger = logging.getLogger(__name__)

HEADER = "Aaiclick-Signature"
DELIVERY_HEADER = "Aaiclick-Delivery"
TOLERANCE_SECONDS = 300
_DELIVERY = re.compile(r"[A-Za-z0-9_-]{1,200}")
_SIGNATURE = re.compile(r"t=(\d{1,12}),v1=([0-9a-f]{64})")


def sign_request(secret: str, body: bytes, timestamp: int, delivery: str | None = None) -> str:
    """Return the signature header of a request."""
    signed = (
        b"%d.%s" % (timestamp, body)
        if delivery is None
        else b"%d.delivery=%s.%s" % (timestamp, delivery.encode(), body)
    )
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


def is_signed(secret: str, body: bytes, header: str, now: float, delivery: str | None = None) -> bool:
    """Return whether a header is a fresh signature of the body, and of the delivery id if there is one."""
    match = _SIGNATURE.fullmatch(header)
    if match is None:
        return False
    timestamp = int(match[1])
    if delivery is not None and _DELIVERY.fullmatch(delivery) is None:
        return False
    expected = sign_request(secret, body, timestamp, delivery)
    return hmac.compare_digest(expected, header) and abs(now - timestamp) <= TOLERANCE_SECONDS


async def receive_webhook(
    connection: Connection,
    org_id: UUID,
    dag_name: str,
    job_name: str,
    body: bytes,
    header: str,
    delivery: str | None = None,
    *,
    now: float | None = None,
) -> tuple[int, bool]:
    """Start the source that a request is for; return the job id, and whether the job is new.

    Raises the same NotFoundError for an unknown source and for an invalid signature.
    """
    secret = await _find_signing_secret(connection, org_id, dag_name, job_name)
    timestamp = time.time() if now is None else now
    # Constant time: an unknown source takes as long as a known one.
    if not is_signed(secret or "", body, header, timestamp, delivery) or secret is None:
        raise NotFoundError(
            "Unknown webhook or invalid signature.", remedy="Check address, secret and the sender's clock."
        )
    try:
        payload: Any = json.loads(body) if body else None
    except ValueError as error:
        raise RequestError(f"The body is not JSON: {error}.", remedy="Send JSON, or nothing.") from None
    key = f"webhook:{header}" if delivery is None else f"webhook:delivery={delivery}"
    trigger = {"kind": "webhook", "payload": payload}
    return await dag_sources.start_source(connection, org_id, dag_name, job_name, trigger, idempotency_key=key)


async def _find_signing_secret(connection: Connection, org_id: UUID, dag_name: str, job_name: str) -> str | None:
    """Return the secret that signs requests to a source; it must not be bound to a host."""
    for row in await dag_sources.list_sources(connection, org_id, dag_name, job_name):
        source, spec = json.loads(row["source"]), json.loads(row["spec"])
        if source["kind"] == "webhook":
            org = await orgs.get_org(connection, org_id)
            try:
                name = spec["secrets"][source["secret"]]
                secret = await secrets.find_secret(connection, org_id, org.slug, name)
            except SecretError as error:
                _logger.warning("Webhook of %s.%s: %s", dag_name, job_name, error.what)
                return None
            return secret.value if secret.host is None else None
    return None
