"""How pages look: pictures in light and dark as artefacts, they fit any window, and axe-core finds no serious fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.ui.conftest import ROOT, SHOTS

AXE = ROOT / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], "resultTypes": ["violations"]}
NARROW, USUAL, WIDE = 360, 1280, 2560


@pytest.fixture(scope="module")
def addresses(things) -> dict[str, str]:
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
        "workers": "/workers",
        "objects": "/objects",
        "dags": "/dags",
        "dag": "/dags/shop",
        "datasets": "/datasets",
        "schedules": "/schedules",
        "admin-keys": "/admin",
        "admin-users": "/admin?view=users",
        "admin-audit": "/admin?view=audit",
        "search": "/search?q=or",
        "not-found": "/no-such-page",
    }


def serious(page, axe: str) -> list[str]:
    page.evaluate(axe)
    found = page.evaluate("async (rules) => (await axe.run(document, rules)).violations", RULES)
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]} {json.dumps(each['nodes'][0]['any'][:1])[:300]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


def axe_source() -> str:
    assert AXE.exists(), "axe-core is not there: 'make browser' installs it"
    return Path(AXE).read_text()


def test_each_page_has_its_pictures_fits_its_window_and_is_accessible(visit, addresses) -> None:
    visitor, axe = visit("admin"), axe_source()
    SHOTS.mkdir(parents=True, exist_ok=True)
    faults: dict[str, list[str]] = {}
    page = visitor.page
    for name, path in addresses.items():
        page.emulate_media(color_scheme="light")
        visitor.go(path)
        page.screenshot(path=SHOTS / f"{name}-light.png", full_page=True)
        faults[f"{name} light"] = serious(page, axe)
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=SHOTS / f"{name}-dark.png", full_page=True)
        if name in ("overview", "jobs", "job-failed", "task-dead", "dead-letters"):
            faults[f"{name} dark"] = serious(page, axe)
        for width in (NARROW, WIDE, USUAL):
            page.set_viewport_size({"width": width, "height": 900})
            if page.evaluate("document.documentElement.scrollWidth") > width:
                faults[f"{name} at {width}"] = ["wider than its window"]
            if width != USUAL and name in ("overview", "jobs", "job-graph", "task-dead"):
                page.screenshot(path=SHOTS / f"{name}-{width}.png", full_page=True)
    visitor.wrong[:] = [said for said in visitor.wrong if "404" not in said]  # the page that is not there
    assert {name: found for name, found in faults.items() if found} == {}


def test_the_page_for_signing_in_is_accessible(visit) -> None:
    visitor = visit(None)
    assert serious(visitor.go("/sign-in"), axe_source()) == []
