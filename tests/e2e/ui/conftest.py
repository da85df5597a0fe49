"""One live stack (databases, server, a worker, an identity provider) and one browser for all tests of the pages.

They go with the package: while Playwright runs, its thread has a running loop, which tests of others must not find.
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
from aaiclick.store import orgs, users
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.targets import PostgresTarget
from tests.e2e.ui.provider import Provider
from tests.hatchery import HATCHERY, Hatched
from tests.integration.server.conftest import Server, make_keys, premises, start_server, with_connection

ROOT = Path(__file__).parents[3]
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--in-process-gpu", "--disable-software-rasterizer", "--disable-extensions", "--renderer-process-limit=1",
]  # fmt: skip
SHOTS = os.environ.get("AAICLICK_UI_SHOTS")
"""Where to keep pictures, for whoever wants to look at them."""

expect.set_options(timeout=30_000)


@dataclass
class Site:
    """The stack, and how to do things to it beside the pages."""

    server: Server
    target: PostgresTarget
    environment: dict[str, str]
    directory: Path
    keys: dict[str, str] = field(repr=False)
    run: Callable[[Any], Any] = field(repr=False)
    provider: Provider
    workers: list[Hatched] = field(default_factory=list)
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
        """Submit a job of these tasks of `steps`; returns its id."""
        full = [task | {"entrypoint": f"tests.e2e.ui.steps.{task['entrypoint']}"} for task in tasks]
        return self.api("POST", "/v1/jobs", {"name": name, "tasks": full, "groups": groups or []})["id"]

    def ended(self, job_id: str) -> str:
        """Wait for a job; returns how it ended."""
        headers = {"Authorization": f"Bearer {self.keys['admin']}"}
        with httpx.stream("GET", f"{self.url}/v1/events?job_id={job_id}", headers=headers, timeout=60) as stream:
            for line in stream.iter_lines():
                if line.startswith(("event: ready", "event: job")):
                    job = self.api("GET", f"/v1/jobs/{job_id}")
                    if job["completed_at"]:
                        return job["status"]
        raise AssertionError("the stream ended")

    def session(self, role: str) -> str:
        """The cookie of somebody who has signed in."""
        if role not in self.sessions:
            with Window(self, role if role in self.keys else None) as window:
                if role not in self.keys:
                    window.sign_in_as(role)
                self.sessions[role] = window.client.cookies["aaiclick_session"]
        return self.sessions[role]

    def sql(self, statement: str, *arguments: Any) -> list[Any]:
        return self.run(with_connection(self.target, lambda connection: connection.fetch(statement, *arguments)))

    def until(self, statement: str) -> None:
        """Ask until `ok` is true; pytest's own limit ends a wait that is in vain."""
        while not self.sql(statement)[0]["ok"]:
            time.sleep(0.05)

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        ran = HATCHERY.run(list(arguments), self.environment, ROOT)
        ran.check_returncode()
        return ran

    def start_worker(self) -> Hatched:
        self.workers.append(_start_worker(self.environment, self.directory))
        return self.workers[-1]


def _start_worker(environment: dict[str, str], directory: Path) -> Hatched:
    arguments = ["worker", "start", "--processes", "1", "--concurrency", "8"]
    with (directory / "worker.log").open("ab") as log:
        return HATCHERY.start(arguments, environment, ROOT, log, log)


class Window:
    """A browser without a face: cookies, and the token of forms."""

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
        found = re.search(r'name="csrf" value="(\w+)"', page)
        assert found
        return found.group(1)

    def sign_in_as(self, who: str) -> None:
        """Sign in at the identity provider."""
        asked = self.client.get("/sign-in/provider").headers["location"]
        back = httpx.get(f"{asked}&who={who}").headers["location"]
        assert self.client.get(back).status_code == 303

    def post(self, path: str, **fields: str) -> httpx.Response:
        return self.client.post(path, data={"csrf": self.csrf, **fields})


async def _populate(connection: Any) -> dict[str, str]:
    other = (await orgs.create_org(connection, name="Other", slug="other"))["id"]
    await users.create_user(connection, DEFAULT_ORG_ID, external_id="ada", role="reader")
    gone = await users.create_user(connection, DEFAULT_ORG_ID, external_id="gone", role="admin")
    await users.change_user(connection, DEFAULT_ORG_ID, gone["id"], email=None, role="admin", disabled=True)
    return await make_keys(connection, {"": DEFAULT_ORG_ID, "other-": other})


@pytest.fixture(scope="package")
def site(aaiclick_stack, _aaiclick_template, tmp_path_factory) -> Iterator[Site]:
    with premises(aaiclick_stack, tmp_path_factory.mktemp("ui")) as place:
        directory, provider = place.directory, Provider()
        environment = place.environment | provider.environment()
        environment |= {"WORKER_HEARTBEAT_INTERVAL": "1", "AAICLICK_TASK_MODULES": "tests.e2e.ui.steps"}
        made = aaiclick_stack.run(with_connection(place.target, _populate))
        worker = _start_worker(environment, directory)  # both start at the same time
        server = start_server(environment, directory / "server.log")
        found = Site(server, place.target, environment, directory, made, aaiclick_stack.run, provider, [worker])
        yield found
        (directory / "gate").touch()
        for worker in found.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
        for worker in found.workers:
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
    """A browser window that listens for what must never happen."""

    context: BrowserContext
    page: Page
    url: str
    wrong: list[str]

    def go(self, path: str) -> Page:
        self.page.goto(self.url + path)
        return self.page


def state(page: Page) -> Locator:
    """The state of the job or task that a page shows."""
    return page.locator("#head .title .state")


@pytest.fixture
def window(site) -> Iterator[Callable[[str | None], Window]]:
    """Windows of somebody who signed in, or of nobody."""
    opened: list[Window] = []

    def open_(role: str | None) -> Window:
        opened.append(Window(site, role))
        return opened[-1]

    yield open_
    for each in opened:
        each.client.close()


class Contexts:
    """Contexts that are used again: a new one starts a process. Each keeps a blank page, and that its process."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser, self._url = browser, url
        self._free: list[BrowserContext] = []

    def take(self, **options: Any) -> BrowserContext:
        if self._free and not options:
            return self._free.pop()
        made = self._browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce", **options)
        if not options:
            made.new_page()
        return made

    def leave(self, context: BrowserContext, *, usual: bool) -> None:
        """Empty as a new one for whoever comes next."""
        if not usual:
            context.close()
            return
        blank, *others = context.pages
        for page in others:
            page.close()
        context.clear_cookies()
        line = context.new_cdp_session(blank)
        line.send("Storage.clearDataForOrigin", {"origin": self._url, "storageTypes": "all"})
        line.detach()
        self._free.append(context)


@pytest.fixture(scope="package")
def contexts(site, browser) -> Contexts:
    return Contexts(browser, site.url)


@pytest.fixture
def visit(site, contexts) -> Iterator[Callable[..., Visitor]]:
    """A window of somebody who has signed in, or of nobody; nothing may go wrong in its console."""
    opened: list[tuple[Visitor, bool]] = []

    def open_(role: str | None = "admin", **options: Any) -> Visitor:
        context = contexts.take(**options)
        page = context.new_page()
        visitor = Visitor(context, page, site.url, [])
        page.on("pageerror", lambda error: visitor.wrong.append(f"error: {error}"))
        page.on("console", lambda said: visitor.wrong.append(said.text) if said.type == "error" else None)
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
    """Something of every kind to look at."""

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
    """Jobs that completed, failed, run (until the gate opens), and dead letters."""
    gate = site.directory / "gate"
    done = site.job(
        "nightly report",
        {"key": "load", "entrypoint": "say", "kwargs": {"words": "loading 3 files"}},
        {"key": "clean", "entrypoint": "say", "depends_on": ["load"]},
        {"key": "enrich", "entrypoint": "say", "depends_on": ["load"]},
        *({"key": f"c{n}", "name": "chunk", "entrypoint": "say", "group": "chunks"} for n in range(12)),
        {"key": "left", "entrypoint": "add", "depends_on": ["chunks", "enrich"]},
        {"key": "publish", "entrypoint": "say", "depends_on": ["left", "clean"]},
        groups=[{"key": "chunks", "depends_on": ["clean"]}],
    )
    failed = site.job(
        "import orders",
        {"key": "fetch", "entrypoint": "say"},
        {"key": "parse", "entrypoint": "fail", "kwargs": {"words": "row 17 has no price"}, "depends_on": ["fetch"]},
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
            "entrypoint": "tests.e2e.ui.steps.fail_until",
            "payload": {"path": str(site.directory / f"mail server {n % 2}")},
            "max_attempts": 1,
        }
        for n in range(5)
    ]
    site.run(with_connection(site.target, _deploy))
    dead = site.api("POST", "/v1/tasks", {"items": items})["ids"]
    assert site.ended(done) == "COMPLETED"
    assert site.ended(failed) == "FAILED"
    site.until("SELECT count(*) = 6 AS ok FROM tasks WHERE status = 'DEAD_LETTER'")
    site.until(f"SELECT count(*) = 1 AS ok FROM tasks WHERE status = 'RUNNING' AND job_id = {running}")
    task = site.sql("SELECT id FROM tasks WHERE job_id = $1 AND type LIKE '%wait_for'", int(running))[0]["id"]
    yield Things(done, failed, running, str(task), dead[0], gate)
    gate.touch()
