"""CSRF on every form of the web UI, and webhooks over HTTP."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import httpx
import pytest

from aaiclick.catalog.webhooks import HEADER, TOLERANCE_SECONDS, sign_request
from aaiclick.server.ui.pages import ALL_PAGES
from tests.integration.server.browser import Browser
from tests.integration.server.conftest import Site

POSTS = sorted({page.path for pages in ALL_PAGES for page in pages.routes if page.method == "POST"})
ADMIN = [path for path in POSTS if path.startswith("/admin")]


@pytest.fixture(scope="module")
def browsers(site) -> Iterator[dict[str, Browser]]:
    sessions = {"admin": Browser(site, "operator-admin"), "second": Browser(site, "operator-admin")}
    sessions |= {"other": Browser(site, "other-admin"), "nobody": Browser(site, None)}
    yield sessions
    for browser in sessions.values():
        browser.client.close()


def state_of(site: Site) -> dict[str, list[str]]:
    """All rows of all tables except sessions and last-use times of keys."""
    names = site.sql(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
    )
    left_out = {"ui_sessions", "api_keys", "audit_log"}
    return {
        name: [row["row"] for row in site.sql(f"SELECT x::text AS row FROM {name} x ORDER BY 1")]
        for (name,) in names
        if name not in left_out
    }


def fields(path: str) -> tuple[str, dict[str, str]]:
    """A path and a form that would change something."""
    address = re.sub(r"\{(\w+)(:\w+)?\}", lambda match: "1" if match[2] or match[1].endswith("id") else "x", path)
    form = dict.fromkeys(("name", "slug", "external_id", "queue", "type", "credential", "theme"), "x")
    return address, form | {"id": "1", "role": "reader", "scopes": "reader", "confirm": "yes", "all": "yes"}


def test_admin_forms_are_collected() -> None:
    assert ADMIN
    assert {"/sign-in", "/sign-out", "/theme"} <= set(POSTS)


@pytest.mark.parametrize("path", POSTS)
def test_form_with_a_missing_or_wrong_csrf_token_is_refused(site, browsers, path: str) -> None:
    """No token, a wrong one, and those of another session, another organisation and an anonymous session."""
    admin = browsers["admin"]
    address, form = fields(path)
    tokens = [None, "", "0" * 64, "é" * 64, *(browsers[name].csrf for name in ("second", "other", "nobody"))]
    for token in tokens:
        sent = form if token is None else form | {"csrf": token}
        answer = admin.client.post(address, data=sent)
        assert answer.status_code == 403, (path, token, answer.status_code)
    answer = admin.client.post(f"{address}?csrf={admin.csrf}", data=form)
    assert answer.status_code == 403, "a token in the address"


@pytest.mark.parametrize("path", POSTS)
def test_form_from_another_origin_is_refused(site, browsers, path: str) -> None:
    admin = browsers["admin"]
    address, form = fields(path)
    host = site.server.url.partition("://")[2]
    for origin in (
        "http://evil.example",
        "null",
        f"http://{host}.evil.example",
        "http://localhost:1",
        f"http://x.{host}",
    ):
        answer = admin.client.post(address, data=form | {"csrf": admin.csrf}, headers={"Origin": origin})
        assert answer.status_code == 403, (path, origin)


@pytest.mark.parametrize("path", POSTS)
def test_form_with_another_media_type_is_refused(site, browsers, path: str) -> None:
    admin = browsers["admin"]
    address, form = fields(path)
    for media_type in ("text/plain", "multipart/form-data; boundary=x"):
        body = "&".join(f"{name}={value}" for name, value in (form | {"csrf": admin.csrf}).items())
        answer = admin.client.post(address, content=body, headers={"Content-Type": media_type})
        assert answer.status_code in (403, 415), (path, media_type, answer.status_code)
    answer = admin.client.post(address, json=form | {"csrf": admin.csrf})
    assert answer.status_code == 403, path


def test_refused_forms_change_nothing(site, browsers) -> None:
    admin = browsers["admin"]
    before = state_of(site)
    for path in POSTS:
        address, form = fields(path)
        admin.client.post(address, data=form)
        admin.client.post(address, data=form | {"csrf": browsers["second"].csrf})
        admin.client.post(address, data=form | {"csrf": admin.csrf}, headers={"Origin": "http://evil.example"})
    assert state_of(site) == before
    assert admin.client.get("/").status_code == 200  # and no session was ended


SECRET = "s3same-of-the-hook"
DAG = """
name: shop
jobs:
  - name: hook
    activation: source
    operator: python
    source: {kind: webhook, secret: signing}
    secrets: {signing: shop-signing}
    config: {function: "shop:receive"}
    outputs: [raw]
    update_strategy: append
    unique_key: [id]
  - name: manual
    activation: source
    operator: python
    source: {kind: manual}
    config: {function: "shop:receive"}
    outputs: [more]
    update_strategy: append
    unique_key: [id]
"""
BODY = b'{"id": 1}'
REFUSED = "Unknown webhook or invalid signature."


@pytest.fixture(scope="module")
def hook(site) -> str:
    """Path of a webhook of the first organisation; the second has the same DAG with another secret."""
    for prefix, secret in (("", SECRET), ("other-", SECRET + "2")):
        admin = site.as_(f"{prefix}admin")
        assert admin.put("/v1/secrets/shop-signing", json={"value": secret}).is_success
        answer = admin.post("/v1/dags/deploy", json={"text": DAG})
        assert answer.status_code == 200, answer.text
    return f"/v1/webhooks/{site.org}/shop/hook"


def deliver(site: Site, path: str, body: bytes = BODY, header: str | None = None, **more: str) -> httpx.Response:
    signature = sign_request(SECRET, body, int(time.time())) if header is None else header
    headers = {HEADER: signature, "Content-Type": "application/json", **more}
    return site.as_(None).post(path, content=body, headers=headers)


def jobs_of(site: Site) -> int:
    return site.sql("SELECT count(*) AS jobs FROM jobs")[0]["jobs"]


def test_repeated_signed_webhook_starts_one_run(site, hook: str) -> None:
    header = sign_request(SECRET, BODY, int(time.time()))
    first = deliver(site, hook, header=header)
    assert first.status_code == 202, first.text
    before = jobs_of(site)
    for _ in range(3):
        again = deliver(site, hook, header=header)
        assert (again.status_code, again.json()) == (200, first.json())
    assert jobs_of(site) == before


def test_wrong_signature_and_unknown_webhook_get_the_same_response(site, hook: str) -> None:
    """Unknown, of another organisation, or wrongly signed: the same response, and no run."""
    now = int(time.time())
    good = sign_request(SECRET, BODY, now)
    before = jobs_of(site)
    answers = [
        deliver(site, hook, header=header)
        for header in (
            "",
            "x" * 5000,
            good[:-1],
            good + "0",
            good.upper(),
            good.replace("v1=", "v2="),
            sign_request("guess", BODY, now),
            sign_request("", BODY, now),
            sign_request(SECRET, BODY + b" ", now),
            good.replace(f"t={now}", f"t={now + 1}"),
            sign_request(SECRET, BODY, now - TOLERANCE_SECONDS - 5),
            sign_request(SECRET, BODY, now + TOLERANCE_SECONDS + 60),
            sign_request(SECRET + "2", BODY, now),
            f"t={'9' * 12},v1={'0' * 64}",
        )
    ]
    unknown = "00000000-0000-4000-8000-00000000dead"
    answers += [
        deliver(site, path)
        for path in (
            f"/v1/webhooks/{site.other}/shop/hook", f"/v1/webhooks/{site.org}/shop/none", hook.replace("shop", "none"),
            f"/v1/webhooks/{site.org}/shop/manual", f"/v1/webhooks/{unknown}/shop/hook",
        )
    ]  # fmt: skip
    responses = {(answer.status_code, answer.json()["detail"]) for answer in answers}
    assert responses == {(404, REFUSED)}
    assert jobs_of(site) == before


def test_webhook_signed_for_another_organisation_starts_nothing(site, hook: str) -> None:
    signature = sign_request(SECRET + "2", BODY, int(time.time()))
    assert deliver(site, hook, header=signature).status_code == 404
    answer = deliver(site, hook.replace(str(site.org), str(site.other)), header=signature)
    assert answer.status_code == 202
    (row,) = site.sql("SELECT org_id FROM jobs WHERE id = $1", int(answer.json()["job_id"]))
    assert row["org_id"] == site.other


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 422),
        (b"]", 400),
        (b"[" * 100, 400),
        (b"\xff", 400),
        (b'{"x": "\\u0000"}', 422),
        (b'{"x": "\\ud800"}', 422),
        (b"[" + b"9" * 10_000 + b"]", 422),
        (b" " * 1_000_001, 413),
        (b"[" + b"1," * 300_000 + b"1]", 413),
    ],
)
def test_malformed_signed_webhook_is_refused(site, hook: str, body: bytes, status: int) -> None:
    before = jobs_of(site)
    answer = deliver(site, hook, body)
    assert answer.status_code == status, answer.text
    assert jobs_of(site) == before


@pytest.mark.parametrize(
    "path", ["/v1/webhooks/1/shop/hook", "/v1/webhooks/{org}/SHOP/hook", "/v1/webhooks/{org}/a/b%00"]
)
def test_malformed_webhook_path_is_refused(site, hook: str, path: str) -> None:
    assert deliver(site, path.format(org=site.org)).status_code in (404, 422)


def test_webhook_secret_is_in_no_response_and_no_log(site, hook: str) -> None:
    assert SECRET not in json.dumps(site.as_("admin").get("/v1/secrets").json())
    assert SECRET not in site.server.log.read_text()
