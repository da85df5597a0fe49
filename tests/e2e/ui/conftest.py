"""Fixtures of the UI tests: one stack (databases, server, worker, identity provider) and one browser.

They have package scope: while Playwright runs, its thread has a running event loop, which disturbs other tests.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from aaiclick.catalog.deploy import deploy
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.tenancy import orgs, users
from tests.e2e.ui.identity_provider import Provider
from tests.fork_server import FORK_SERVER, ForkedProcess
from tests.integration.server.conftest import Server, make_keys, premises, start_server, with_connection

ROOT = Path(__file__).parents[3]
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--in-process-gpu", "--disable-software-rasterizer", "--disable-extensions", "--renderer-process-limit=1",
]  # fmt: skip
SHOTS = os.environ.get("AAICLICK_UI_SHOTS")
"""Directory for screenshots, if set."""

expect.set_options(timeout=30_000)


@dataclass
class Site:
    """The stack under test, with access by API, SQL and command line."""

    server: Server
    endpoint: PostgresEndpoint
    environment: dict[str, str]
    directory: Path
    keys: dict[str, str] = field(repr=False)
    stack: Any = field(repr=False)
    provider: Provider
    workers: list[ForkedProcess] = field(default_factory=list)
    sessions: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def url(self) -> str:
        return self.server.url

    def api(self, method: str, path: str, body: Any = None, role: str = "admin") -> Any:
        headers = {"Authorization": f"Bearer {self.keys[role]}"}
        answer = httpx.request(method, f"{self.url}{path}", json=body, headers=headers, timeout=30)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def job(self, name: str, *tasks: dict[str, Any], groups: list[dict[str, Any]] | None = None) -> str:
        """Submit a job of functions in `tasks`; returns its id."""
        full = [task | {"entrypoint": f"tests.e2e.ui.tasks.{task['entrypoint']}"} for task in tasks]
        return self.api("POST", "/v1/jobs", {"name": name, "tasks": full, "groups": groups or []})["id"]

    def ended(self, job_id: str) -> str:
        """Wait for a job; returns its final status."""
        headers = {"Authorization": f"Bearer {self.keys['admin']}"}
        with httpx.stream("GET", f"{self.url}/v1/events?job_id={job_id}", headers=headers, timeout=60) as stream:
            for line in stream.iter_lines():
                if line.startswith(("event: ready", "event: job")):
                    job = self.api("GET", f"/v1/jobs/{job_id}")
                    if job["completed_at"]:
                        return job["status"]
        raise AssertionError("the stream ended")

    def session(self, role: str) -> str:
        """Return the session cookie of a signed-in role or user."""
        if role not in self.sessions:
            with Window(self, role if role in self.keys else None) as window:
                if role not in self.keys:
                    window.sign_in_as(role)
                self.sessions[role] = window.client.cookies["aaiclick_session"]
        return self.sessions[role]

    def sql(self, statement: str, *arguments: Any) -> list[Any]:
        return self.run(lambda connection: connection.fetch(statement, *arguments))

    def run(self, work: Callable[[Any], Any]) -> Any:
        """Call a function with a connection to the database."""
        return self.stack.run(self.stack.use_connection(self.endpoint.database, work))

    def until(self, statement: str) -> None:
        """Poll until `ok` is true; pytest's timeout ends the wait."""
        while not self.sql(statement)[0]["ok"]:
            time.sleep(0.05)

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        ran = FORK_SERVER.run(list(arguments), self.environment, ROOT)
        ran.check_returncode()
        return ran

    def start_worker(self) -> ForkedProcess:
        self.workers.append(_start_worker(self.environment, self.directory))
        return self.workers[-1]


def _start_worker(environment: dict[str, str], directory: Path) -> ForkedProcess:
    arguments = ["worker", "start", "--processes", "1", "--concurrency", "8"]
    with (directory / "worker.log").open("ab") as log:
        return FORK_SERVER.start(arguments, environment, ROOT, log, log)


class Window:
    """HTTP client with cookies and a CSRF token, like a browser without scripts."""

    def __init__(self, site: Site, role: str | None) -> None:
        self.client = httpx.Client(base_url=site.url, timeout=30)
        self.csrf = self.token(self.client.get("/sign-in").text)
        if role is not None:
            assert self.post("/sign-in", credential=site.keys[role]).status_code == 303
            self.csrf = self.token(self.client.get("/").text)

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    @staticmethod
    def token(page: str) -> str:
        match = re.search(r'name="csrf" value="(\w+)"', page)
        assert match
        return match.group(1)

    def sign_in_as(self, who: str) -> None:
        """Sign in at the identity provider."""
        provider_url = self.client.get("/sign-in/provider").headers["location"]
        callback_url = httpx.get(f"{provider_url}&who={who}").headers["location"]
        assert self.client.get(callback_url).status_code == 303

    def post(self, path: str, **fields: str) -> httpx.Response:
        return self.client.post(path, data={"csrf": self.csrf, **fields})


async def _populate(connection: Any) -> dict[str, str]:
    other = (await orgs.create_org(connection, name="Other", slug="other")).id
    await users.create_user(connection, DEFAULT_ORG_ID, external_id="ada", role="reader")
    gone = await users.create_user(connection, DEFAULT_ORG_ID, external_id="gone", role="admin")
    await users.update_user(connection, DEFAULT_ORG_ID, gone.id, email=None, role="admin", disabled=True)
    return await make_keys(connection, {"": DEFAULT_ORG_ID, "other-": other})


@pytest.fixture(scope="package")
def site(aaiclick_stack, _aaiclick_template, tmp_path_factory) -> Iterator[Site]:
    with premises(aaiclick_stack, tmp_path_factory.mktemp("ui")) as installation:
        directory, provider = installation.directory, Provider()
        environment = installation.environment | provider.environment()
        environment |= {"WORKER_HEARTBEAT_INTERVAL": "1", "AAICLICK_TASK_MODULES": "tests.e2e.ui.tasks"}
        keys = aaiclick_stack.run(with_connection(installation.endpoint, _populate))
        worker = _start_worker(environment, directory)  # both start at the same time
        server = start_server(environment, directory / "server.log")
        live_site = Site(
            server, installation.endpoint, environment, directory, keys, aaiclick_stack, provider, [worker]
        )
        yield live_site
        (directory / "gate").touch()
        for worker in live_site.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
        for worker in live_site.workers:
            worker.wait(60)
        provider.close()
        assert server.stop() == 0


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "no Chromium: 'make browser' installs one"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@dataclass
class Visitor:
    """Browser page that records script errors."""

    context: BrowserContext
    page: Page
    url: str
    wrong: list[str]
    runs_scripts: bool = True

    def go(self, path: str) -> Page:
        self.page.goto(self.url + path)
        self.wait_for_scripts()
        return self.page

    def wait_for_scripts(self) -> None:
        """Wait until the module of the page has run: before that, keys have no effect."""
        if self.runs_scripts:
            expect(self.page.locator("html.scripted")).to_be_attached()


def state(page: Page) -> Locator:
    """Locate the state of the job or task on a page."""
    return page.locator("#head .title .state")


@pytest.fixture
def window(site) -> Iterator[Callable[[str | None], Window]]:
    """Opens HTTP clients that are signed in with a role, or signed out."""
    opened: list[Window] = []

    def open_(role: str | None) -> Window:
        opened.append(Window(site, role))
        return opened[-1]

    yield open_
    for opened_window in opened:
        opened_window.client.close()


class Contexts:
    """Pool of browser contexts, since a new one starts a process. A blank page keeps the process of each alive."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser, self._url = browser, url
        self._free: list[BrowserContext] = []

    def take(self, **options: Any) -> BrowserContext:
        if self._free and not options:
            return self._free.pop()
        context = self._browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce", **options)
        if not options:
            context.new_page()
        return context

    def leave(self, context: BrowserContext, *, usual: bool) -> None:
        """Clear a context and return it to the pool."""
        if not usual:
            context.close()
            return
        blank, *used_pages = context.pages
        for page in used_pages:
            page.close()
        context.clear_cookies()
        session = context.new_cdp_session(blank)
        session.send("Storage.clearDataForOrigin", {"origin": self._url, "storageTypes": "all"})
        session.detach()
        self._free.append(context)


@pytest.fixture(scope="package")
def contexts(site, browser) -> Contexts:
    return Contexts(browser, site.url)


@pytest.fixture
def visit(site, contexts) -> Iterator[Callable[..., Visitor]]:
    """Opens browser pages that are signed in with a role, or signed out; asserts that no script error occurred."""
    opened: list[tuple[Visitor, bool]] = []

    def open_(role: str | None = "admin", **options: Any) -> Visitor:
        context = contexts.take(**options)
        page = context.new_page()
        visitor = Visitor(context, page, site.url, [], options.get("java_script_enabled", True))
        page.on("pageerror", lambda error: visitor.wrong.append(f"error: {error}"))
        page.on("console", lambda message: visitor.wrong.append(message.text) if message.type == "error" else None)
        opened.append((visitor, not options))
        if role is not None:
            context.add_cookies([{"name": "aaiclick_session", "value": site.session(role), "url": site.url}])
        return visitor

    yield open_
    for visitor, usual in opened:
        contexts.leave(visitor.context, usual=usual)
    for visitor, _ in opened:
        assert visitor.wrong == []


@dataclass(frozen=True)
class Things:
    """Ids of jobs and tasks in different states."""

    done: str
    failed: str
    running: str
    running_task: str
    dead_task: str
    gate: Path


SHOP = """
name: shop
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {kind: cron, schedule: "0 6 * * *", timezone: Europe/Berlin}
    outputs: [raw]
    update_strategy: append
    unique_key: [id]
    config: {function: "shop:fetch"}
  - name: clean
    activation: reactive
    operator: sql
    outputs: [orders]
    config: {query: SELECT id FROM raw WHERE id > 0}
  - name: sums
    activation: reactive
    operator: sql
    outputs: [daily]
    config: {query: SELECT count() AS n FROM orders}
publish: [{output: daily, name: shop_daily}]
"""


async def _deploy(connection: Any) -> None:
    for text in (SHOP, SHOP.replace("id > 0", "id > 1")):
        await deploy(connection, text)


@pytest.fixture(scope="package")
def things(site) -> Iterator[Things]:
    """Creates completed, failed and running jobs (until the gate file exists), and dead letters."""
    gate = site.directory / "gate"
    done = site.job(
        "nightly report",
        {"key": "load", "entrypoint": "say", "kwargs": {"text": "loading 3 files"}},
        {"key": "clean", "entrypoint": "say", "depends_on": ["load"]},
        {"key": "enrich", "entrypoint": "say", "depends_on": ["load"]},
        *({"key": f"c{n}", "name": "chunk", "entrypoint": "say", "group": "chunks"} for n in range(12)),
        {"key": "left", "entrypoint": "add", "depends_on": ["chunks", "enrich"]},
        {"key": "publish", "entrypoint": "add", "depends_on": ["left", "clean"]},
        groups=[{"key": "chunks", "depends_on": ["clean"]}],
    )
    failed = site.job(
        "import orders",
        {"key": "fetch", "entrypoint": "say"},
        {"key": "parse", "entrypoint": "fail", "kwargs": {"text": "row 17 has no price"}, "depends_on": ["fetch"]},
        {"key": "store", "entrypoint": "say", "depends_on": ["parse"]},
        {"key": "tell", "entrypoint": "fail_until", "kwargs": {"path": "no such file"}, "max_attempts": 1},
    )
    running = site.job(
        "train model",
        {"key": "prepare", "entrypoint": "say"},
        {"key": "fit", "entrypoint": "wait_for", "kwargs": {"path": str(gate)}, "depends_on": ["prepare"]},
        {"key": "judge", "entrypoint": "say", "depends_on": ["fit"]},
    )
    items = [
        {
            "type": "email:send",
            "entrypoint": "tests.e2e.ui.tasks.fail_until",
            "payload": {"path": str(site.directory / f"mail server {n % 2}")},
            "max_attempts": 1,
        }
        for n in range(5)
    ]
    site.run(_deploy)
    dead = site.api("POST", "/v1/tasks", {"items": items})["ids"]
    assert site.ended(done) == "COMPLETED"
    assert site.ended(failed) == "FAILED"
    site.until("SELECT count(*) = 6 AS ok FROM tasks WHERE status = 'DEAD_LETTER'")
    site.until(f"SELECT count(*) = 1 AS ok FROM tasks WHERE status = 'RUNNING' AND job_id = {running}")
    task = site.sql("SELECT id FROM tasks WHERE job_id = $1 AND type LIKE '%wait_for'", int(running))[0]["id"]
    yield Things(done, failed, running, str(task), dead[0], gate)
    gate.touch()
