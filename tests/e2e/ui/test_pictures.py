"""Each page in light and dark, kept as artefacts; narrow and very wide ones fit their window."""

from __future__ import annotations

import os

import pytest

from tests.e2e.ui.conftest import SHOTS

WIDTHS = {"narrow": 360, "wide": 2560}


@pytest.fixture(scope="module")
def addresses(things) -> dict[str, str]:
    return {
        "overview": "/",
        "jobs": "/jobs",
        "job-graph": f"/jobs/{things.done}",
        "job-failed": f"/jobs/{things.failed}",
        "job-running": f"/jobs/{things.running}",
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
        "admin-keys": "/admin",
        "admin-audit": "/admin?view=audit",
        "search": "/search?q=or",
        "nothing": "/no-such-page",
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_page_has_its_picture(visit, addresses, theme: str) -> None:
    visitor = visit("admin", color_scheme=theme)
    SHOTS.mkdir(parents=True, exist_ok=True)
    for name, path in addresses.items():
        page = visitor.go(path)
        page.screenshot(path=SHOTS / f"{name}-{theme}.png", full_page=True)
    visitor.wrong[:] = [said for said in visitor.wrong if "404" not in said]  # the page that is not there


@pytest.mark.parametrize("width", list(WIDTHS))
def test_pages_fit_their_window(visit, addresses, width: str) -> None:
    visitor = visit("admin")
    visitor.page.set_viewport_size({"width": WIDTHS[width], "height": 900})
    for name, path in addresses.items():
        page = visitor.go(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width], name
        if name in ("overview", "jobs", "job-graph", "task-dead") or os.environ.get("AAICLICK_UI_SHOTS"):
            page.screenshot(path=SHOTS / f"{name}-{width}.png", full_page=True)
    visitor.wrong[:] = [said for said in visitor.wrong if "404" not in said]
