"""Accessibility (axe-core) and width of every page; screenshots with AAICLICK_UI_SHOTS."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.ui.conftest import ROOT, SHOTS

AXE = ROOT / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
NARROW, USUAL, WIDE = 360, 1280, 2560
AT_ALL_WIDTHS = ("overview", "jobs", "job-graph", "task-dead", "queues")
WHOLE = ("overview", "sign-in")  # the frame of the other pages is the same
DARK_TOO = ("overview", "jobs", "job-failed", "task-dead", "dead-letters", "dag-older", "sign-in")


def add_approval(site) -> int:
    item = {"type": "none", "run_at": "2100-01-01T00:00:00Z"}
    task = site.api("POST", "/v1/tasks", {"items": [item]})["ids"][0]
    form = {"properties": {"euros": {"type": "integer"}, "gift": {"type": "boolean"}, "size": {"enum": ["S", "L"]}}}
    return site.sql(
        "INSERT INTO approvals (id, org_id, task_id, attempt, expires_at, title, role, form, shown)"
        " SELECT id, org_id, id, 0, available_at, 'Pay?', 'writer', $2, $3 FROM tasks WHERE id = $1 RETURNING id",
        int(task), json.dumps(form), '{"columns": ["city"], "rows": [["Rom"]], "total": 1}',
    )[0]["id"]  # fmt: skip


@pytest.fixture(scope="module")
def addresses(site, things) -> dict[str, str]:
    older = site.sql("SELECT yaml_hash FROM dag_versions WHERE dag_name = 'shop' ORDER BY created_at LIMIT 1")[0]
    dataset = site.sql("SELECT id FROM datasets WHERE name = 'shop_daily'")[0]["id"]
    worker = site.sql("SELECT id FROM workers LIMIT 1")[0]["id"]
    table = site.sql("SELECT result ->> 'table_id' AS name FROM tasks WHERE job_id = $1 LIMIT 1", int(things.done))[0]
    incident = site.sql("SELECT max(id) AS id FROM incidents WHERE job_id = $1", int(things.failed))[0]["id"]
    other = site.sql("SELECT id FROM orgs WHERE slug = 'other'")[0]["id"]
    return {
        "overview": "/",
        "jobs": "/jobs",
        "job-graph": f"/jobs/{things.done}",
        "job-failed": f"/jobs/{things.failed}",
        "job-timeline": f"/jobs/{things.done}?view=timeline",
        "job-tasks": f"/jobs/{things.done}?view=tasks",
        "job-log": f"/jobs/{things.done}?view=log",
        "job-events": f"/jobs/{things.failed}?view=events",
        "task-running": f"/tasks/{things.running_task}",
        "task-dead": f"/tasks/{things.dead_task}",
        "clear": f"/tasks/{things.running_task}/clear",
        "queues": "/queues?change=default",
        "dead-letters": "/dead-letters?list=1",
        "incidents": "/incidents?closed=1",
        "incident": f"/incidents/{incident}",
        "workers": "/workers",
        "worker": f"/workers/{worker}",
        "objects": "/objects",
        "object": f"/objects/{table['name']}",
        "dags": "/dags",
        "dag": "/dags/shop",
        "dag-older": f"/dags/shop?version={older['yaml_hash']}",
        "backfill": "/dags/shop/backfill?job=fetch&from=2026-01-01&to=2026-01-03",
        "datasets": "/datasets",
        "dataset": f"/datasets/{dataset}",
        "schedules": "/schedules",
        "approvals": "/approvals?all=1",
        "approval": f"/approvals/{add_approval(site)}",
        "admin-keys": "/admin",
        "admin-secrets": "/admin?view=secrets",
        "admin-users": "/admin?view=users",
        "admin-orgs": f"/admin?view=orgs&change={other}",
        "admin-audit": "/admin?view=audit",
        "search": "/search?q=or",
        "not-found": "/no-such-page",
    }


ALONE = {"sign-in": "/sign-in?next=/jobs", "sign-in-failed": "/sign-in/callback?state=x"}


def axe_source() -> str:
    assert AXE.exists(), "axe-core is not installed: run 'make browser'"
    return Path(AXE).read_text()


def find_serious_violations(page, *only: str, part: str = "main") -> list[str]:
    """Return the serious violations in a part of a page, by all WCAG rules or some."""
    run = {"type": "rule", "values": only} if only else {"type": "tag", "values": LEVELS}
    rules = {"runOnly": run, "resultTypes": ["violations"], "preload": False, "iframes": False, "selectors": False}
    violations = page.evaluate("async ([part, rules]) => (await axe.run(part, rules)).violations", [part, rules])
    return [
        f"{violation['id']}: {violation['nodes'][0]['html'][:200]} {json.dumps(violation['nodes'][0]['any'][:1])[:300]}"
        for violation in violations
        if violation["impact"] in ("serious", "critical")
    ]


class PageAuditor:
    """Checks pages at several widths and colour schemes; collects faults and screenshots."""

    def __init__(self, visitor) -> None:
        self.visitor, self.page = visitor, visitor.page
        self.faults: dict[str, list[str]] = {}
        self.axe = axe_source()
        self.widths = [USUAL, NARROW]

    def look(self, name: str, path: str) -> None:
        """Check a page at each width, starting with the current one, since a new layout is slow."""
        self.page.emulate_media(color_scheme="light")
        self.visitor.go(path)
        for width in [*self.widths, WIDE] if name in AT_ALL_WIDTHS else self.widths:
            if self.page.viewport_size["width"] != width:
                self.page.set_viewport_size({"width": width, "height": 900})
            if width == USUAL:
                self.look_closely(name)
            elif self.page.evaluate("document.documentElement.scrollWidth") > width:
                self.faults[f"{name} at {width}"] = ["wider than its window"]
        self.widths.sort(key=lambda width: width != self.page.viewport_size["width"])

    def look_closely(self, name: str) -> None:
        self.page.evaluate(self.axe)
        self.keep(f"{name}-light")
        self.faults[f"{name} light"] = find_serious_violations(self.page, part="html" if name in WHOLE else "main")
        if not SHOTS and name not in DARK_TOO:
            return
        self.page.emulate_media(color_scheme="dark")
        self.keep(f"{name}-dark")
        if name in DARK_TOO:
            self.faults[f"{name} dark"] = find_serious_violations(self.page, "color-contrast")

    def keep(self, name: str) -> None:
        if SHOTS:
            self.page.screenshot(path=Path(SHOTS) / f"{name}.png")

    def check(self, *expected: str) -> None:
        """Assert that there are no faults, ignoring console errors of expected status codes."""
        self.visitor.wrong[:] = [
            message for message in self.visitor.wrong if not any(code in message for code in expected)
        ]
        assert {name: faults for name, faults in self.faults.items() if faults} == {}


def test_pages_fit_the_window_and_are_accessible(visit, addresses) -> None:
    eye = PageAuditor(visit("admin"))
    for name, path in addresses.items():
        eye.look(name, path)
    eye.visitor.go("/jobs")
    eye.page.keyboard.press("Control+k")
    eye.page.evaluate(eye.axe)
    expect(eye.page.get_by_role("option").first).to_have_attribute("aria-selected", "true")
    eye.faults["palette"] = find_serious_violations(eye.page, part="dialog")
    eye.page.keyboard.press("Escape")
    eye.page.keyboard.press("?")
    eye.faults["keys"] = find_serious_violations(eye.page, part="dialog")
    eye.check("404")


def test_signed_out_pages_are_accessible(visit) -> None:
    eye = PageAuditor(visit(None))
    for name, path in ALONE.items():
        eye.look(name, path)
    eye.check("401")


def test_empty_pages_are_accessible_and_show_a_command(visit, window) -> None:
    eye = PageAuditor(visit("other-reader"))
    eye.look("empty-dags", "/dags")
    eye.check()
    other = window("other-reader").client
    for name in ("jobs", "dags", "datasets", "objects", "schedules", "dead-letters"):
        text = other.get(f"/{name}").text
        lists = 2 if name == "schedules" else 1  # schedules, and sources of DAGs
        assert text.count('class="empty-title"') == lists, name
        assert text.count('class="command"') == (0 if name == "dead-letters" else lists), name
