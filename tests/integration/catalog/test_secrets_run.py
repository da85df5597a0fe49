"""Secrets in real tasks: granted by name, to one organisation and one host, and never logged."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar
from uuid import uuid4

import pytest

from aaiclick.errors import LeaseLost, SecretError
from aaiclick.orchestration import create_job, create_task, get_secret
from aaiclick.orchestration.worker.inline_runner import run_until_job_ends
from aaiclick.settings import get_settings
from aaiclick.store.engine import queue
from aaiclick.store.tenancy import orgs
from aaiclick.store.tenancy import secrets as org_secrets
from aaiclick.store.tenancy.secret_encryption import KEY_FILE, new_key

JOBS = "tests.integration.catalog.secret_functions"
CANARY = "canary-of-a-secret/+ü"


class Listener(BaseHTTPRequestHandler):
    """Records requests, and redirects to the path."""

    requests: ClassVar[list[tuple[str, str, str | None, str]]] = []

    def do_GET(self):
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size).decode()
        name = f"{self.headers['Host']}"
        self.requests.append((name, self.path, self.headers["X-Key"], body))
        status, _, target = self.path.lstrip("/").partition("/")
        moved = status.isdecimal()
        answer = json.dumps([{"path": self.path.partition("?")[0]}]).encode()
        self.send_response(int(status) if moved else 200)
        if moved:
            self.send_header("Location", f"http://{target}")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_):
        """No access log."""


@pytest.fixture
def web(monkeypatch):
    """A server with two names; secrets are bound to one of them."""
    Listener.requests = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    thread = Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("AAICLICK_PRIVATE_HOSTS", "127.0.0.1,localhost,::1")
    get_settings.cache_clear()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()
    get_settings.cache_clear()


def dag(config, *, secrets="[key]", operator="http_fetch", more=""):
    return f"""
name: shop
jobs:
  - name: fetch
    activation: source
    operator: {operator}
    source: {{kind: manual}}
    outputs: [records]
    max_attempts: 1
    secrets: {secrets}
    config: {json.dumps(config)}
{more}
"""


async def fail(shop, text):
    await shop.deploy(text)
    assert await asyncio.wait_for(shop.finish(await shop.fire()), 60) == "FAILED"
    return (await shop.errors())[-1]


async def everything_kept(db):
    """Return all rows of all tables as text."""
    tables = await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    rows = [await db.fetch(f'SELECT t::text FROM "{table[0]}" t') for table in tables]
    return "\n".join(row[0] for table_rows in rows for row in table_rows)


async def test_only_granted_secrets_resolve(shop, web):
    url = f"http://127.0.0.1:{web}/"
    headers = {"X-Key": {"secret": "key"}}
    assert "has no secret 'key'" in await fail(shop, dag({"url": url, "headers": headers}))
    await orgs.create_org(shop.db, name="B", slug="b")
    await shop.grant("key", "other-org-canary", slug="b")
    await shop.deploy(dag({"url": url, "headers": headers}))
    assert await shop.finish(await shop.fire()) == "FAILED"
    assert Listener.requests == []
    await shop.grant("key", "sesame")
    await shop.run()
    assert [request[2] for request in Listener.requests] == ["sesame"]


async def test_a_row_copied_from_another_organisation_cannot_be_decrypted(shop, web):
    await orgs.create_org(shop.db, name="B", slug="b")
    await shop.grant("key", "other-org-canary", slug="b")
    await shop.db.execute(
        "INSERT INTO org_secrets SELECT (SELECT id FROM orgs WHERE slug = 'default'), name, host, ciphertext, key_id "
        "FROM org_secrets"
    )
    error = await fail(shop, dag({"url": f"http://127.0.0.1:{web}/", "headers": {"X-Key": {"secret": "key"}}}))
    assert "was changed in the database" in error
    assert Listener.requests == []


async def test_secret_map_is_limited_to_organisation(shop, web, monkeypatch):
    monkeypatch.setenv("THE_TOKEN", "mapped-canary")
    monkeypatch.setenv("AAICLICK_SECRETS_MAP", '{"b/key": "env:THE_TOKEN"}')
    get_settings.cache_clear()
    config = {"url": f"http://127.0.0.1:{web}/", "headers": {"X-Key": {"secret": "key"}}}
    assert "has no secret 'key'" in await fail(shop, dag(config))
    monkeypatch.setenv("AAICLICK_SECRETS_MAP", '{"default/key": "env:THE_TOKEN"}')
    get_settings.cache_clear()
    await shop.run()
    assert [request[2] for request in Listener.requests] == ["mapped-canary"]
    listed = await org_secrets.list_secrets(shop.db, await orgs.find_org(shop.db, "default"))
    assert [(secret.name, secret.source) for secret in listed] == [("key", "map")]
    with pytest.raises(Exception, match="AAICLICK_SECRETS_MAP"):
        await shop.grant("key", "shadowed")


async def test_definition_of_another_organisation_is_not_found(shop, web):
    """Task arguments are untrusted input for workers on the databases."""
    await shop.grant("key", CANARY)
    await shop.deploy(dag({"url": f"http://127.0.0.1:{web}/", "headers": {"X-Key": {"secret": "key"}}}))
    definition = await shop.db.fetchval("SELECT id FROM job_definitions")
    other = (await orgs.create_org(shop.db, name="B", slug="b")).id
    arguments = {"definition": str(definition), "event": {}}
    task = create_task("aaiclick.catalog.execution.definition_task.run_definition", arguments, max_attempts=1)
    job = await create_job("thief", task)
    await shop.db.execute("UPDATE jobs SET org_id = $1", other)
    await shop.db.execute("UPDATE tasks SET org_id = $1", other)
    assert (await run_until_job_ends(job.id)).status == "FAILED"
    assert f"There is no definition {definition}" in (await shop.errors())[-1]
    assert Listener.requests == []


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://127.0.0.1:{port}/there", 1),
        ("http://localhost:{port}/there", 0),
        ("http://127.0.0.1:{port}/302/127.0.0.1:{port}/there", 2),
        ("http://127.0.0.1:{port}/302/localhost:{port}/there", 1),
        ("http://127.0.0.1:{port}/307/localhost:{port}/there", 1),
        ("http://127.0.0.1:{port}/302/127.0.0.1:{port}/302/localhost:{port}/there", 2),
        ("http://127.1:{port}/there", 0),
        ("http://127.0.0.1.:{port}/there", 0),
    ],
)
async def test_a_bound_secret_is_sent_to_its_host_only(shop, web, url, sent):
    await shop.grant("key", CANARY, f"http://127.0.0.1:{web}")
    config = {"url": url.format(port=web), "parameters": {"q": {"secret": "key"}}}
    await shop.deploy(dag(config))
    await shop.finish(await shop.fire())
    assert len(Listener.requests) == sent
    assert {host for host, *_ in Listener.requests} <= {f"127.0.0.1:{web}"}
    for error in await shop.errors():
        assert "is bound to" in error
        assert CANARY not in error


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_headers_and_body_of_one_origin_are_not_sent_to_another(shop, web, status):
    await shop.grant("key", "sesame")
    url = f"http://127.0.0.1:{web}/{status}/localhost:{web}/there"
    config = {"url": url, "method": "POST", "headers": {"X-Key": {"secret": "key"}}, "body": {"k": {"secret": "key"}}}
    await shop.deploy(dag(config))
    ended = await shop.finish(await shop.fire())
    first, *redirected = Listener.requests
    assert first[2:] == ("sesame", '{"k": "sesame"}')
    assert ended == ("FAILED" if status in (307, 308) else "COMPLETED")
    assert [request[1:] for request in redirected] == ([] if status in (307, 308) else [("/there", None, "")])


@pytest.mark.parametrize("usage", ["arguments", "get_secret"])
async def test_bound_secret_is_not_given_to_code(shop, usage):
    await shop.grant("key", CANARY, "api.example.com")
    arguments = {"token": {"secret": "key"}} if usage == "arguments" else {"name": "key"}
    function = f"{JOBS}:{'given' if usage == 'arguments' else 'length'}"
    error = await fail(shop, dag({"function": function, "arguments": arguments}, operator="python"))
    assert "is bound to https://api.example.com" in error
    assert CANARY not in error


async def test_definition_code_has_declared_secrets(shop):
    await shop.grant("granted", "sesame")
    await shop.grant("undeclared", "sesame-street")
    python = {"function": f"{JOBS}:length", "arguments": {"name": "key"}}
    await shop.deploy(dag(python, operator="python", secrets="{key: granted}"))
    await shop.run()
    assert await shop.rows("shop.records") == [(6,)]
    python["arguments"] = {"name": "undeclared"}
    error = await fail(shop, dag(python, operator="python", secrets="{key: granted}"))
    assert "declares no secret 'undeclared'" in error


async def test_a_plain_task_has_the_secrets_of_its_organisation(shop):
    await shop.grant("key", "sesame")
    job = await create_job("plain", create_task(f"{JOBS}.length", {"name": "key"}))
    assert (await run_until_job_ends(job.id)).status == "COMPLETED"
    with pytest.raises(SecretError, match="only in a task"):
        await get_secret("key")


@pytest.mark.parametrize(
    ("operator", "config"),
    [
        ("python", {"function": f"{JOBS}:use", "arguments": {"name": "key"}}),
        ("python", {"function": f"{JOBS}:fails", "arguments": {"token": {"secret": "key"}}}),
        ("http_fetch", {"url": "http://127.0.0.1:1/", "parameters": {"k": {"secret": "key"}}}),
        ("http_fetch", {"url": "http://absent.invalid/", "headers": {"X-Key": {"secret": "key"}}}),
        (
            "http_fetch",
            {"url": "http://127.0.0.1:1/", "body": {"secret": "key"}, "method": "POST"},
        ),
    ],
)
async def test_secrets_are_not_in_logs_errors_or_database(shop, web, tmp_path, monkeypatch, capfd, operator, config):
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path / "logs"))
    monkeypatch.setenv("AAICLICK_LOG_FORMAT", "json")
    get_settings.cache_clear()
    await shop.grant("key", CANARY)
    error = await fail(shop, dag(config, operator=operator))
    output = "".join(path.read_text() for path in (tmp_path / "logs").iterdir()) + "".join(capfd.readouterr())
    assert error.splitlines()[0] in output
    for text in (error, output, await everything_kept(shop.db)):
        assert CANARY not in text
        assert "canary-of-a-secret" not in text


async def test_missing_or_wrong_key_raises_clear_error(shop, web, monkeypatch, tmp_path):
    await shop.grant("key", "sesame")
    config = {"url": f"http://127.0.0.1:{web}/", "headers": {"X-Key": {"secret": "key"}}}
    monkeypatch.setenv("AAICLICK_SECRETS_KEY", new_key())
    get_settings.cache_clear()
    assert "which this process does not have" in await fail(shop, dag(config))
    with pytest.raises(SecretError, match="which this process does not have"):
        await shop.grant("another", "sesame")
    [missing] = await org_secrets.find_missing_keys(shop.db)
    assert missing == await shop.db.fetchval("SELECT key_id FROM org_secrets")
    monkeypatch.delenv("AAICLICK_SECRETS_KEY")
    monkeypatch.setenv("AAICLICK_HOME", str(tmp_path / "home"))
    get_settings.cache_clear()
    with pytest.raises(SecretError, match="which this process does not have"):  # and creates no new key
        await shop.grant("another", "sesame")
    assert not (tmp_path / "home" / KEY_FILE).exists()


async def test_keys_are_rotated_in_the_file(shop, monkeypatch, tmp_path):
    monkeypatch.delenv("AAICLICK_SECRETS_KEY")
    monkeypatch.setenv("AAICLICK_HOME", str(tmp_path / "home"))
    get_settings.cache_clear()
    await shop.grant("key", "sesame")
    await shop.grant("bound", "sesame", "api.example.com")
    org = await orgs.find_org(shop.db, "default")
    values = set()
    for _ in range(3):
        values.add((tmp_path / "home" / KEY_FILE).read_text().split()[0])
        assert await org_secrets.rotate_keys(shop.db, from_environment=False) == 2
        assert len(await shop.db.fetch("SELECT DISTINCT key_id FROM org_secrets")) == 1
        assert (await org_secrets.find_secret(shop.db, org.id, "default", "bound")).value == "sesame"
    assert len(values) == 3
    assert len((tmp_path / "home" / KEY_FILE).read_text().split()) == 2


async def test_keys_of_the_environment_are_rotated_to_the_first(shop, monkeypatch):
    await shop.grant("key", "sesame")
    old, new = get_settings().secrets_key.get_secret_value(), new_key()
    for keys in (f"{new},{old}", new):
        monkeypatch.setenv("AAICLICK_SECRETS_KEY", keys)
        get_settings.cache_clear()
        assert await org_secrets.rotate_keys(shop.db, from_environment=True) == 1
    org = await orgs.find_org(shop.db, "default")
    assert (await org_secrets.find_secret(shop.db, org.id, "default", "key")).value == "sesame"


async def test_lost_lease_gets_no_secret(shop):
    await shop.grant("key", "sesame")
    await create_job("plain", create_task(f"{JOBS}.length", {"name": "key"}))
    worker = await queue.register_worker(shop.db, hostname="here", pid=1)
    [claim] = await queue.claim(shop.db, worker_id=worker.id, limit=1, queues=[], lease_seconds=60)
    assert (await org_secrets.load_task_secrets(shop.db, claim.lease, ["key"]))[0].value == "sesame"
    for stale in (replace(claim.lease, token=uuid4()), replace(claim.lease, attempt=2)):
        with pytest.raises(LeaseLost):
            await org_secrets.load_task_secrets(shop.db, stale, ["key"])
    await queue.acknowledge(shop.db, worker_id=worker.id, releases=[claim.lease])
    with pytest.raises(LeaseLost):
        await org_secrets.load_task_secrets(shop.db, claim.lease, ["key"])


async def test_invalid_type_reaches_no_query(shop, monkeypatch):
    """Declared types become query text, and S3 keys are query parameters."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-of-s3")
    python = {"function": "tests.integration.catalog.dag_functions:fetch"}
    text = dag(python, operator="python", secrets="[]").replace(
        "outputs: [records]", "outputs: [{name: records, columns: {day: String}}]"
    )
    await shop.deploy(text)
    await shop.run()
    stolen = "String) AS a, {aai_s3_secret:String} AS b, CAST(day AS String"
    await shop.db.execute(
        "UPDATE job_definitions SET spec = jsonb_set(spec, '{outputs,0,columns,day}', to_jsonb($1::text))", stolen
    )
    assert await shop.finish(await shop.fire()) == "FAILED"
    assert "is not a type" in (await shop.errors())[-1]
    assert "canary-of-s3" not in str(await shop.rows("shop.records"))
