"""CSRF on every form of the web UI, and webhooks over HTTP."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import httpx
import pytest

from aaiclick.catalog.webhooks import HEADER, TOLERANCE_SECONDS, sign
from aaiclick.server.ui.pages import ALL
from tests.integration.server.conftest import Site

POSTS = sorted({page.path for pages in ALL for page in pages.declared if page.method == "POST"})
ADMIN = [path for path in POSTS if path.startswith("/admin")]


class Browser:
    """A session of the web UI."""

    def __init__(self, site: Site, role: str | None) -> None:
        self.client = httpx.Client(base_url=site.server.url, timeout=30)
        self.csrf = self.token("/sign-in")
        if role is not None:
            form = {"csrf": self.csrf, "credential": site.keys[role]}
            assert self.client.post("/sign-in", data=form).status_code == 303
            self.csrf = self.token("/")

    def token(self, path: str) -> str:
        found = re.search(r'name="csrf" value="(\w+)"', self.client.get(path).text)
        assert found is not None
        return found.group(1)


@pytest.fixture(scope="module")
def browsers(site) -> Iterator[dict[str, Browser]]:
    found = {"admin": Browser(site, "operator-admin"), "second": Browser(site, "operator-admin")}
    found |= {"other": Browser(site, "other-admin"), "nobody": Browser(site, None)}
    yield found
    for browser in found.values():
        browser.client.close()


def state_of(site: Site) -> dict[str, list[str]]:
    """Every row of every table but sessions and the times at which keys were used."""
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
    """An address and a form that would do something."""
    address = re.sub(r"\{(\w+)(:\w+)?\}", lambda found: "1" if found[2] or found[1].endswith("id") else "x", path)
    form = dict.fromkeys(("name", "slug", "external_id", "queue", "type", "credential", "theme"), "x")
    return address, form | {"id": "1", "role": "reader", "scopes": "reader", "confirm": "yes", "all": "yes"}


def test_forms_of_the_admin_pages_are_found() -> None:
    assert ADMIN
    assert {"/sign-in", "/sign-out", "/theme"} <= set(POSTS)


@pytest.mark.parametrize("path", POSTS)
def test_a_form_without_the_token_of_its_session_is_refused(site, browsers, path: str) -> None:
    """No token, a wrong one, that of another session of the same user, of another organisation, of nobody."""
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
def test_a_form_from_another_origin_is_refused(site, browsers, path: str) -> None:
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
def test_a_form_of_another_type_is_refused(site, browsers, path: str) -> None:
    admin = browsers["admin"]
    address, form = fields(path)
    for kind in ("text/plain", "multipart/form-data; boundary=x"):
        body = "&".join(f"{name}={value}" for name, value in (form | {"csrf": admin.csrf}).items())
        answer = admin.client.post(address, content=body, headers={"Content-Type": kind})
        assert answer.status_code in (403, 415), (path, kind, answer.status_code)
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
    assert admin.client.get("/").status_code == 200  # and nobody was signed out


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
REFUSED = "This request opens nothing here."


@pytest.fixture(scope="module")
def hook(site) -> str:
    """The address of a webhook of our organisation; the other one has the same DAG with another secret."""
    for prefix, secret in (("", SECRET), ("other-", SECRET + "2")):
        admin = site.as_(f"{prefix}admin")
        assert admin.put("/v1/secrets/shop-signing", json={"value": secret}).is_success
        answer = admin.post("/v1/dags/deploy", json={"text": DAG})
        assert answer.status_code == 200, answer.text
    return f"/v1/webhooks/{site.org}/shop/hook"


def deliver(site: Site, path: str, body: bytes = BODY, header: str | None = None, **more: str) -> httpx.Response:
    signature = sign(SECRET, body, int(time.time())) if header is None else header
    headers = {HEADER: signature, "Content-Type": "application/json", **more}
    return site.as_(None).post(path, content=body, headers=headers)


def jobs_of(site: Site) -> int:
    return site.sql("SELECT count(*) AS jobs FROM jobs")[0]["jobs"]


def test_a_signed_webhook_starts_one_run_however_often_it_comes(site, hook: str) -> None:
    header = sign(SECRET, BODY, int(time.time()))
    first = deliver(site, hook, header=header)
    assert first.status_code == 202, first.text
    before = jobs_of(site)
    for _ in range(3):
        again = deliver(site, hook, header=header)
        assert (again.status_code, again.json()) == (200, first.json())
    assert jobs_of(site) == before


def test_a_webhook_with_a_wrong_signature_or_address_is_answered_alike(site, hook: str) -> None:
    """What is not there, of another organisation, or wrongly signed: one answer, and no run."""
    now = int(time.time())
    good = sign(SECRET, BODY, now)
    before = jobs_of(site)
    answers = [
        deliver(site, hook, header=header)
        for header in (
            "", "x" * 5000, good[:-1], good + "0", good.upper(), good.replace("v1=", "v2="), sign("guess", BODY, now),
            sign("", BODY, now), sign(SECRET, BODY + b" ", now), good.replace(f"t={now}", f"t={now + 1}"),
            sign(SECRET, BODY, now - TOLERANCE_SECONDS - 5), sign(SECRET, BODY, now + TOLERANCE_SECONDS + 60),
            sign(SECRET + "2", BODY, now), f"t={'9' * 12},v1={'0' * 64}",
        )
    ]  # fmt: skip
    unknown = "00000000-0000-4000-8000-00000000dead"
    answers += [
        deliver(site, path)
        for path in (
            f"/v1/webhooks/{site.other}/shop/hook", f"/v1/webhooks/{site.org}/shop/none", hook.replace("shop", "none"),
            f"/v1/webhooks/{site.org}/shop/manual", f"/v1/webhooks/{unknown}/shop/hook",
        )
    ]  # fmt: skip
    told = {(answer.status_code, answer.json()["detail"]) for answer in answers}
    assert told == {(404, REFUSED)}
    assert jobs_of(site) == before


def test_a_webhook_signed_for_another_organisation_starts_nothing_here(site, hook: str) -> None:
    theirs = sign(SECRET + "2", BODY, int(time.time()))
    assert deliver(site, hook, header=theirs).status_code == 404
    answer = deliver(site, hook.replace(str(site.org), str(site.other)), header=theirs)
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
def test_a_malformed_webhook_is_refused_also_if_it_is_signed(site, hook: str, body: bytes, status: int) -> None:
    before = jobs_of(site)
    answer = deliver(site, hook, body)
    assert answer.status_code == status, answer.text
    assert jobs_of(site) == before


@pytest.mark.parametrize(
    "path", ["/v1/webhooks/1/shop/hook", "/v1/webhooks/{org}/SHOP/hook", "/v1/webhooks/{org}/a/b%00"]
)
def test_a_malformed_webhook_address_is_refused(site, hook: str, path: str) -> None:
    assert deliver(site, path.format(org=site.org)).status_code in (404, 422)


def test_the_secret_of_a_webhook_is_in_no_answer_and_no_log(site, hook: str) -> None:
    assert SECRET not in json.dumps(site.as_("admin").get("/v1/secrets").json())
    assert SECRET not in site.server.log.read_text()
