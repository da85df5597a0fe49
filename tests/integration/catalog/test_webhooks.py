"""Webhooks: the signature is the credential, and a repeated request starts one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aaiclick.catalog import webhooks
from aaiclick.catalog.deploy import deploy
from aaiclick.errors import NotFoundError, RequestError
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.tenancy import secrets
from aaiclick.store.tenancy.postgres_api_role import create_api_pool, ensure_api_role, set_tenant
from tests.integration.catalog.conftest import JOBS

DOCUMENT = (Path(__file__).parents[3] / "docs" / "dags.md").read_text(encoding="utf-8")
HOOKED = DOCUMENT.split("## Webhooks")[1].split("```yaml\n")[1].split("```")[0].replace("shop:receive", f"{JOBS}:fetch")
NOW = 1_800_000_000
BODY = json.dumps({"rows": [{"id": 1, "day": "mon", "amount": 2}]}).encode()


async def test_signed_request_starts_source_of_its_org_once(shop, aaiclick_postgres):
    await shop.grant("shop-signing", "sesame")
    await deploy(shop.db, HOOKED)
    await ensure_api_role(shop.db)
    pool = create_api_pool(aaiclick_postgres, size=1, statement_seconds=30)
    good = webhooks.sign_request("sesame", BODY, NOW)

    async def send(body=BODY, header=good, job="hook", now=NOW + 5):
        async with pool.acquire() as connection:
            await set_tenant(connection, DEFAULT_ORG_ID)
            return await webhooks.receive_webhook(connection, DEFAULT_ORG_ID, "shop", job, body, header, now=now)

    async with pool:
        first, new = await send()
        assert new
        assert await send() == (first, False)
        messages = set()
        for wrong in (
            {"header": webhooks.sign_request("guess", BODY, NOW)}, {"header": ""}, {"body": BODY + b" "},
            {"job": "hooks"}, {"now": NOW + 301}, {"header": good.replace("t=1", "t=2")}, {"header": good + "0"},
        ):  # fmt: skip
            with pytest.raises(NotFoundError) as refused:
                await send(**wrong)
            messages.add(str(refused.value))
        assert len(messages) == 1
        with pytest.raises(RequestError, match="not JSON"):
            await send(b"{", webhooks.sign_request("sesame", b"{", NOW))
        await shop.grant("shop-signing", "sesame", "api.example.com")  # bound to a host: cannot sign
        with pytest.raises(NotFoundError):
            await send(header=webhooks.sign_request("sesame", BODY, NOW))
        await secrets.delete_secret(shop.db, DEFAULT_ORG_ID, "shop-signing")
        with pytest.raises(NotFoundError):
            await send(header=webhooks.sign_request("", BODY, NOW))
    assert await shop.db.fetchval("SELECT count(*) FROM jobs") == 1
    assert await shop.finish(first) == "COMPLETED"
    assert await shop.rows("shop.raw") == [(1, "mon", 2)]


async def test_delivery_repeated_with_new_timestamp_starts_one_run(shop):
    await shop.grant("shop-signing", "sesame")
    await deploy(shop.db, HOOKED)

    async def send(delivery, moment, signed=None, body=BODY):
        header = webhooks.sign_request("sesame", body, moment, signed or delivery)
        return await webhooks.receive_webhook(
            shop.db, DEFAULT_ORG_ID, "shop", "hook", body, header, delivery, now=moment + 1
        )

    first, new = await send("d-1", NOW)
    assert new
    assert await send("d-1", NOW) == (first, False)
    assert await send("d-1", NOW + 3600) == (first, False)
    second, new = await send("d-2", NOW)
    assert new
    assert second != first
    for wrong in ({"delivery": "d-3", "signed": "d-1"}, {"delivery": "a b"}, {"delivery": "x" * 201}):
        with pytest.raises(NotFoundError):
            await send(moment=NOW, **wrong)
    with pytest.raises(NotFoundError):  # the signed delivery id is missing
        await webhooks.receive_webhook(
            shop.db,
            DEFAULT_ORG_ID,
            "shop",
            "hook",
            BODY,
            webhooks.sign_request("sesame", BODY, NOW, "d-4"),
            None,
            now=NOW,
        )
    assert await shop.db.fetchval("SELECT count(*) FROM jobs") == 2
    assert await shop.finish(first) == "COMPLETED"
    assert await shop.finish(second) == "COMPLETED"
    tidied = "SELECT count(*) FROM tasks WHERE type = 'shop.hook'"
    assert await shop.db.fetchval(tidied) == 2
