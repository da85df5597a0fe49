"""Live updates: new jobs, finished jobs, lost attempts and logs appear without a reload."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from aaiclick.store.ui import job_queries
from tests.e2e.ui.conftest import state

SHIFTS = """() => { window.kept = true; window.shifts = 0;
new PerformanceObserver((list) => { for (const e of list.getEntries()) window.shifts += e.value; })
  .observe({ type: 'layout-shift', buffered: false }); }"""


def test_new_job_appears_and_finishes_without_a_reload(site, visit) -> None:
    gate = site.directory / "watched"
    site.ended(site.job("there before", {"key": "a", "entrypoint": "say", "kwargs": {"text": "before"}}))
    page = visit("reader").go("/jobs")
    first = page.locator("tbody tr").first
    expect(first).to_be_visible()
    page.evaluate(SHIFTS)
    position, row_text = first.bounding_box(), first.inner_text()
    site.cli("run", "tests.e2e.ui.tasks.wait_for", "--arg", f"path={gate}", "--name", "watched", "--no-wait")
    expect(page.locator("[data-news]")).to_have_text("1 new")
    assert first.bounding_box() == position  # existing rows do not move
    assert first.inner_text().split()[0] == row_text.split()[0]
    page.locator("[data-news]").click()
    expect(page.locator("tbody tr").first).to_contain_text("watched")
    page.locator("tbody tr").first.get_by_role("link").click()
    expect(state(page)).to_have_text("Running")
    page.evaluate(SHIFTS)
    gate.touch()
    expect(state(page)).to_have_text("Completed")
    expect(page.locator("#graph .n-completed")).to_have_count(1)
    assert page.evaluate("window.kept")
    assert page.evaluate("window.shifts") < 0.01


def test_lost_attempt_is_shown_and_the_task_recovers(site, visit) -> None:
    job = site.job("mortal", {"key": "a", "entrypoint": "die_once", "kwargs": {"path": str(site.directory / "died")}})
    task = site.sql("SELECT id FROM tasks WHERE job_id = $1", int(job))[0]["id"]
    page = visit("reader").go(f"/tasks/{task}")
    expect(state(page)).to_have_text("Completed")
    expect(page.locator("#attempts")).to_contain_text("Lost")
    expect(page.locator("#attempts")).to_contain_text("ended with signal 9")
    expect(page.locator("#previews")).to_contain_text("recovered")


def test_log_of_a_running_task_is_followed(site, visit) -> None:
    gate = site.directory / "talked"
    kwargs = {"path": str(gate), "text": "one <b>\u202e"}
    job = site.job("talker", {"key": "a", "entrypoint": "wait_for", "kwargs": kwargs})
    task = site.sql("SELECT id FROM tasks WHERE job_id = $1", int(job))[0]["id"]
    page = visit("reader").go(f"/tasks/{task}")
    expect(page.locator("#log")).to_contain_text("one <b>\\u202e")
    gate.touch()
    expect(page.locator("#log")).to_contain_text("seen it")
    expect(page.locator("#log")).to_contain_text("one <b>\\u202e")
    expect(state(page)).to_have_text("Completed")
    page.goto(page.url.replace(f"/tasks/{task}", f"/jobs/{job}?view=log"))
    expect(page.locator("#log")).to_contain_text("seen it")


def test_large_job_is_drawn_by_type_and_filtered_by_state(site, visit, window) -> None:
    chunks = [{"key": f"c{n}", "entrypoint": "say", "group": "all"} for n in range(job_queries.MAX_DETAILED_TASKS + 50)]
    job = site.job(
        "large",
        {"key": "start", "entrypoint": "fail", "kwargs": {"text": "no such file"}},
        *chunks,
        {"key": "end", "entrypoint": "add", "depends_on": ["all"]},
        groups=[{"key": "all", "depends_on": ["start"]}],
    )
    assert site.ended(job) == "FAILED"
    page = visit("reader").go(f"/jobs/{job}")
    expect(page.locator("#graph")).to_contain_text("×1,050")
    expect(page.locator("#graph .n-failed")).to_have_count(1)
    reader = window("reader").client
    rows = {
        state: len(re.findall(r"<tr data-key", reader.get(f"/jobs/{job}?view=tasks&status={state}").text))
        for state in ("FAILED", "DEAD_LETTER", "RUNNING", "PENDING", "COMPLETED", "CANCELLED")
    }
    assert rows == dict.fromkeys(rows, 0) | {"FAILED": 1, "CANCELLED": 100}
    assert "no such file" in reader.get(f"/jobs/{job}?view=tasks&status=FAILED").text
    assert reader.get(f"/jobs/{job}?view=timeline").status_code == 200

    sample, units = (
        {tuple(row) for row in site.run(lambda connection, read=read: read(connection, int(job)))}
        for read in (job_queries.sample_job_units, job_queries.load_job_units)
    )
    assert sample == units  # the sample covers the whole job
