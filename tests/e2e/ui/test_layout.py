"""Layout with long names, large graphs and narrow windows; pagination of long lists."""

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
        {"key": "broken", "entrypoint": "fail", "kwargs": {"text": WORD}},
        {"key": "loud", "entrypoint": "say", "kwargs": {"text": "\x1b[31mred\x1b[0m"}},
    )
    chain = site.job(
        "a long chain",
        *({"key": f"c{n}", "entrypoint": "say", "depends_on": [f"c{n - 1}"] if n else []} for n in range(40)),
    )
    site.ended(job)
    tasks = {row["type"].rpartition(".")[2]: str(row["id"]) for row in _load_tasks(site, job)}
    return {"job": job, "chain": chain, **tasks}


def _load_tasks(site, job: str):
    return site.sql("SELECT id, type FROM tasks WHERE job_id = $1", int(job))


def is_within_window(page, locator) -> bool:
    """Whether an element lies within the window without horizontal scrolling."""
    locator.scroll_into_view_if_needed()
    page.evaluate("document.querySelectorAll('.scroll').forEach((each) => { each.scrollLeft = 0; })")
    box = locator.bounding_box()
    return box["x"] >= 0 and box["x"] + box["width"] <= page.evaluate("document.documentElement.clientWidth")


def test_actions_are_within_the_window(site, visit, large, things) -> None:
    page = visit("admin").go("/workers")
    assert is_within_window(page, page.get_by_role("button", name="Drain").first)
    page.goto(f"{site.url}/jobs")
    row = page.locator("tr", has_text=LONG)
    expect(row.get_by_role("link")).to_have_attribute("title", LONG)
    assert is_within_window(page, row.locator("td").last)
    page.goto(f"{site.url}/tasks/{large['fail']}")
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.goto(f"{site.url}/queues")
    idle = page.locator("tr", has_text="default").first
    assert is_within_window(page, idle.get_by_role("button", name="Pause"))
    for figure in idle.locator("td:not(.do)").all():
        assert is_within_window(page, figure)
        assert figure.bounding_box()["y"] < idle.get_by_role("button", name="Pause").bounding_box()["y"]
    page.goto(f"{site.url}/dead-letters")
    letters = page.locator("#groups tbody tr").first
    assert letters.get_by_role("link").bounding_box()["width"] > 100
    for action in ("Redrive", "Discard"):
        assert is_within_window(page, letters.get_by_role("button", name=action))
    page.goto(f"{site.url}/admin")
    assert is_within_window(page, page.get_by_role("button", name="Revoke").first)
    page.goto(f"{site.url}/dags/shop")
    canvas, last = page.locator(".canvas").bounding_box(), page.locator(".graph .node").last.bounding_box()
    assert last["x"] + last["width"] <= canvas["x"] + canvas["width"]


def test_errors_link_tasks_and_hide_ansi_codes(site, visit, large) -> None:
    page = visit("reader").go(f"/jobs/{large['job']}")
    expect(page.locator("pre.error a")).to_have_attribute("href", f"/tasks/{large['fail']}")
    page.goto(f"{site.url}/tasks/{large['say']}")
    expect(page.locator("#log")).to_contain_text("I say red")
    expect(page.locator("#log")).not_to_contain_text("[31m")
    isolated = page.evaluate("getComputedStyle(document.querySelector('main a')).unicodeBidi")
    assert isolated == "isolate"


def test_large_graph_is_readable_and_moved_by_keyboard(visit, large) -> None:
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


def test_empty_queue_is_listed(site, window) -> None:
    assert 'name="name" value="default"' in window("other-writer").client.get("/queues").text
    item = {"type": "t", "queue": "passing", "entrypoint": "tests.e2e.ui.tasks.say"}
    site.api("POST", "/v1/tasks", {"items": [item]})
    site.until("SELECT count(*) = 1 AS ok FROM queue_minutes WHERE queue = 'passing'")
    assert 'name="name" value="passing"' in window("writer").client.get("/queues").text


def test_queue_list_is_paginated(site, window) -> None:
    client = window("other-writer").client
    site.sql(
        "INSERT INTO queues (org_id, name, weight) SELECT o.id, 'many ' || lpad(n::text, 3, '0'), n"
        " FROM orgs o, generate_series(1, 150) n WHERE o.slug = 'other' RETURNING 1"
    )
    try:
        *_, text = pages = _load_pages(client, "/queues")
        names = [name for page_text in pages for name in re.findall(r"<b>(many \d+)</b>", page_text)]
        assert names == [f"many {n:03}" for n in range(1, 151)]
        limits = re.search(r'href="([^"]+many\+150#limits)"', text)[1]
        assert 'name="weight" min="1" value="150"' in client.get(html.unescape(limits)).text
    finally:
        site.sql("DELETE FROM queues WHERE name LIKE 'many %' RETURNING 1")


MANY = """
    WITH org AS (SELECT id FROM orgs WHERE slug = 'other'),
    numbers AS (SELECT gen_random_uuid() AS version, 'many ' || lpad(n::text, 3, '0') AS name
        FROM generate_series(1, 150) n),
    versions AS (INSERT INTO dag_versions (id, org_id, dag_name, yaml_hash, yaml)
        SELECT version, org.id, name, 'h', '' FROM numbers, org),
    serving AS (INSERT INTO dag_current_versions (org_id, dag_name, dag_version_id)
        SELECT org.id, name, version FROM numbers, org),
    sources AS (INSERT INTO job_definitions (id, org_id, name, dag_name, dag_version_id, activation, runtime, operator,
            source, config, config_hash, spec, update_strategy, status)
        SELECT gen_random_uuid(), org.id, name, name, version, 'source', 'pool', 'sql', '{"kind": "manual"}', '{}', 'h',
            '{}', 'replace', 'Pending' FROM numbers, org),
    made AS (INSERT INTO datasets (id, org_id, name, producer_dag_name, producer_job_name, producer_output_index,
            storage, read_roles)
        SELECT gen_random_uuid(), org.id, name, name, name, 0, '{}', '{}' FROM numbers, org RETURNING id, name),
    generations AS (INSERT INTO dataset_versions (id, dataset_uuid, storage_location, config_hash)
        SELECT gen_random_uuid(), id, 'nowhere', 'h' FROM made RETURNING id, dataset_uuid),
    workers AS (INSERT INTO workers (id, pid, hostname, queues, org_id, status, stopped_at)
        SELECT n, 1, 'many ' || lpad(n::text, 3, '0'), '{}', org.id, 'STOPPED', now()
        FROM generate_series(1, 150) n, org)
    INSERT INTO dag_version_datasets (dag_version_id, dataset_uuid, dataset_version)
    SELECT version, made.id, generations.id FROM numbers JOIN made USING (name)
    JOIN generations ON generations.dataset_uuid = made.id RETURNING 1
"""
FEW = """
    WITH gone AS (DELETE FROM workers WHERE hostname LIKE 'many %'),
    unnamed AS (DELETE FROM datasets WHERE name LIKE 'many %'),
    unserved AS (DELETE FROM dag_current_versions WHERE dag_name LIKE 'many %')
    SELECT 1
"""


@pytest.fixture
def many(site):
    site.sql(MANY)
    yield
    site.sql(FEW)
    site.sql("DELETE FROM dag_versions WHERE dag_name LIKE 'many %' RETURNING 1")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/dags", r'href="/dags/[^"]*">(many \d+)<'),
        ("/datasets", r'href="/datasets/[^"]*">(many \d+)<'),
        ("/schedules", r"<b>(many \d+)</b>"),
        ("/workers?stopped=yes", r"(many \d+) <span"),
    ],
)
def test_long_lists_are_paginated(window, many, path, name) -> None:
    pages = _load_pages(window("other-admin").client, path)
    assert len(pages) == 2
    row_names = [row_name for page in pages for row_name in re.findall(name, page)]
    assert row_names == sorted(row_names, reverse="workers" in path)
    assert sorted(row_names) == [f"many {n:03}" for n in range(1, 151)]
    assert "First" not in pages[0]
    assert "First" in pages[1]


def test_dataset_beyond_the_first_page_is_shown(site, window, many) -> None:
    [last] = site.sql("SELECT id FROM datasets WHERE name = 'many 150'")
    assert "many 150" in window("other-admin").client.get(f"/datasets/{last['id']}").text


def _load_pages(client, path: str | None) -> list[str]:
    """Load all pages of a list by following the next links."""
    page_texts: list[str] = []
    while path is not None:
        page_texts.append(client.get(path).text)
        next_link = re.search(r'rel="next" href="([^"]+)"', page_texts[-1])
        path = next_link and html.unescape(next_link[1])
    return page_texts


def test_pages_explain_their_terms(site, window, things) -> None:
    turned = site.job("\u202ebackwards", {"key": "a", "entrypoint": "say"})
    reader = window("reader").client
    expected_texts = {
        "/": ("running jobs with failed tasks", "unfinished</span>"),
        "/jobs": ("Progress in tasks:", "unfinished</span>"),
        "/dead-letters?list=1": ("<b>Redrive</b> runs them again", "<b>retry</b> the job", 'class="n s-dead"'),
        "/objects": ('<span class="dim">result of</span>', "<th>Created</th>", "<time datetime="),
        f"/jobs/{things.failed}": ("1 dead letter</span>",),
        f"/jobs/{turned}": ("<title>\\u202ebackwards · ", "<h1>\\u202ebackwards</h1>"),
    }
    for path, texts in expected_texts.items():
        text = reader.get(path).text
        assert [expected_text for expected_text in texts if expected_text not in text] == [], path


def test_small_result_is_shown_on_its_own_page_and_on_the_page_of_its_task(site, window) -> None:
    job = site.job("small result", {"key": "a", "entrypoint": "say", "kwargs": {"text": "a small result"}})
    assert site.ended(job) == "COMPLETED"
    [row] = site.sql("SELECT id, result ->> 'table_id' AS table FROM tasks WHERE job_id = $1", int(job))
    reader = window("reader").client
    page = reader.get(f"/objects/{row['table']}")
    assert page.status_code == 200
    assert "a small result" in page.text
    assert "a small result" in reader.get(f"/tasks/{row['id']}").text


def test_dag_job_links_to_its_dag_instead_of_run_again(site, visit, things) -> None:
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
