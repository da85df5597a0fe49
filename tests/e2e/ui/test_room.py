"""Long names, long words, large graphs, narrow windows: everything stays within reach and can be read."""

from __future__ import annotations

import html
import re

import pytest
from playwright.sync_api import expect

LONG = "a_very_long_name_of_a_job_that_nobody_would_choose_" * 3
WORD = "x" * 900


@pytest.fixture(scope="module")
def large(site) -> dict[str, str]:
    job = site.job(
        LONG,
        {"key": "broken", "entrypoint": "fail", "kwargs": {"words": WORD}},
        {"key": "loud", "entrypoint": "say", "kwargs": {"words": "\x1b[31mred\x1b[0m"}},
    )
    chain = site.job(
        "a long chain",
        *({"key": f"c{n}", "entrypoint": "say", "depends_on": [f"c{n - 1}"] if n else []} for n in range(40)),
    )
    site.ended(job)
    tasks = {row["type"].rpartition(".")[2]: str(row["id"]) for row in _tasks(site, job)}
    return {"job": job, "chain": chain, **tasks}


def _tasks(site, job: str):
    return site.sql("SELECT id, type FROM tasks WHERE job_id = $1", int(job))


def reachable(page, locator) -> bool:
    """Whether a thing lies within the window as it is, without scrolling sideways."""
    locator.scroll_into_view_if_needed()
    page.evaluate("document.querySelectorAll('.scroll').forEach((each) => { each.scrollLeft = 0; })")
    box = locator.bounding_box()
    return box["x"] >= 0 and box["x"] + box["width"] <= page.evaluate("document.documentElement.clientWidth")


def test_everything_is_within_the_window(site, visit, large, things) -> None:
    page = visit("admin").go("/workers")
    assert reachable(page, page.get_by_role("button", name="Drain").first)
    page.goto(f"{site.url}/jobs")
    row = page.locator("tr", has_text=LONG)
    expect(row.get_by_role("link")).to_have_attribute("title", LONG)
    assert reachable(page, row.locator("td").last)
    page.goto(f"{site.url}/tasks/{large['fail']}")
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.goto(f"{site.url}/queues")
    idle = page.locator("tr", has_text="default").first
    assert reachable(page, idle.get_by_role("button", name="Pause"))
    for figure in idle.locator("td:not(.do)").all():
        assert reachable(page, figure)
        assert figure.bounding_box()["y"] < idle.get_by_role("button", name="Pause").bounding_box()["y"]
    page.goto(f"{site.url}/dead-letters")
    letters = page.locator("#groups tbody tr").first
    assert letters.get_by_role("link").bounding_box()["width"] > 100
    for deed in ("Redrive", "Discard"):
        assert reachable(page, letters.get_by_role("button", name=deed))
    page.goto(f"{site.url}/admin")
    assert reachable(page, page.get_by_role("button", name="Revoke").first)
    page.goto(f"{site.url}/dags/shop")
    canvas, last = page.locator(".canvas").bounding_box(), page.locator(".graph .node").last.bounding_box()
    assert last["x"] + last["width"] <= canvas["x"] + canvas["width"]


def test_errors_lead_to_their_tasks_and_codes_of_terminals_are_not_shown(site, visit, large) -> None:
    page = visit("reader").go(f"/jobs/{large['job']}")
    expect(page.locator("pre.error a")).to_have_attribute("href", f"/tasks/{large['fail']}")
    page.goto(f"{site.url}/tasks/{large['say']}")
    expect(page.locator("#log")).to_contain_text("I say red")
    expect(page.locator("#log")).not_to_contain_text("[31m")
    isolated = page.evaluate("getComputedStyle(document.querySelector('main a')).unicodeBidi")
    assert isolated == "isolate"


def test_a_large_graph_begins_with_words_that_can_be_read_and_is_walked_with_keys(visit, large) -> None:
    page = visit("reader").go(f"/jobs/{large['chain']}")
    text, scroll = page.locator("svg.graph text").first, page.locator(".canvas .scroll")
    high = text.bounding_box()["height"]
    assert high >= 8
    before = text.bounding_box()["x"]
    scroll.focus()
    page.keyboard.press("ArrowRight")
    assert text.bounding_box()["x"] < before
    page.get_by_role("button", name="Fit").click()
    assert text.bounding_box()["height"] < high


def test_a_queue_that_is_empty_can_still_be_paused(site, window) -> None:
    assert 'name="name" value="default"' in window("other-writer").client.get("/queues").text
    item = {"type": "t", "queue": "passing", "entrypoint": "tests.e2e.ui.steps.say"}
    site.api("POST", "/v1/tasks", {"items": [item]})
    site.until("SELECT count(*) = 1 AS ok FROM queue_minutes WHERE queue = 'passing'")
    assert 'name="name" value="passing"' in window("writer").client.get("/queues").text


def test_queues_come_in_pages_each_with_its_limits(site, window) -> None:
    client = window("other-writer").client
    site.sql(
        "INSERT INTO queues (org_id, name, weight) SELECT o.id, 'many ' || lpad(n::text, 3, '0'), n"
        " FROM orgs o, generate_series(1, 150) n WHERE o.slug = 'other' RETURNING 1"
    )
    try:
        seen: list[str] = []
        path: str | None = "/queues"
        while path is not None:
            text = client.get(path).text
            seen += re.findall(r"<b>(many \d+)</b>", text)
            following = re.search(r'rel="next" href="([^"]+)"', text)
            path = following and html.unescape(following[1])
        assert seen == [f"many {n:03}" for n in range(1, 151)]
        limits = re.search(r'href="([^"]+many\+150#limits)"', text)[1]
        assert 'name="weight" min="1" value="150"' in client.get(html.unescape(limits)).text
    finally:
        site.sql("DELETE FROM queues WHERE name LIKE 'many %' RETURNING 1")


def test_pages_say_what_they_mean(site, window, things) -> None:
    turned = site.job("\u202ebackwards", {"key": "a", "entrypoint": "say"})
    reader = window("reader").client
    said = {
        "/": ("jobs at work with failed tasks", "to do</span>"),
        "/jobs": ("Progress, in tasks:", "to do</span>"),
        "/dead-letters?list=1": ("<b>redrive</b> starts them over", "<b>retry</b> the job", 'class="n s-dead"'),
        "/objects": ('<span class="dim">result of</span>', "<th>Made</th>", "<time datetime="),
        f"/jobs/{things.failed}": ("1 dead letter</span>",),
        f"/jobs/{turned}": ("<title>\\u202ebackwards · ", "<h1>\\u202ebackwards</h1>"),
    }
    for path, words in said.items():
        text = reader.get(path).text
        assert [each for each in words if each not in text] == [], path


def test_a_job_of_a_dag_leads_to_its_dag_instead_of_running_again(site, visit, things) -> None:
    job = site.job("shop.fetch", {"key": "a", "entrypoint": "say"})
    site.ended(job)
    version = site.sql("SELECT dag_version_id FROM dag_current_versions WHERE dag_name = 'shop'")[0]["dag_version_id"]
    site.sql("UPDATE jobs SET dag_version_id = $2 WHERE id = $1", int(job), version)
    page = visit("writer").go(f"/jobs/{job}")
    expect(page.get_by_role("button", name="Run again")).to_have_count(0)
    expect(page.get_by_role("link", name="Backfill …")).to_have_attribute("href", "/dags/shop/backfill")
    page.get_by_role("link", name="Fire shop …").click()
    expect(page.locator("h1")).to_have_text("shop")
    expect(page.locator(".graph use").first).to_have_attribute("href", "#s-definition")
