"""People watch: what begins, ends, dies and speaks is on the page without a reload, however large it is."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from aaiclick.store import ui_reads
from aaiclick.store.engine import connect
from tests.e2e.ui.conftest import state

SHIFTS = """() => { window.kept = true; window.shifts = 0;
new PerformanceObserver((list) => { for (const e of list.getEntries()) window.shifts += e.value; })
  .observe({ type: 'layout-shift', buffered: false }); }"""


def test_a_job_started_by_the_command_line_is_watched_to_its_end_without_a_reload(site, visit) -> None:
    gate = site.directory / "watched"
    site.ended(site.job("there before", {"key": "a", "entrypoint": "say", "kwargs": {"words": "before"}}))
    page = visit("reader").go("/jobs")
    first = page.locator("tbody tr").first
    expect(first).to_be_visible()
    page.evaluate(SHIFTS)
    place, words = first.bounding_box(), first.inner_text()
    site.cli("run", "tests.e2e.ui.steps.wait_for", "--arg", f"path={gate}", "--name", "watched", "--no-wait")
    expect(page.locator("[data-news]")).to_have_text("1 new")
    assert first.bounding_box() == place  # rows never jump under the cursor
    assert first.inner_text().split()[0] == words.split()[0]
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


def test_a_worker_that_dies_is_seen_and_its_task_recovers(site, visit) -> None:
    job = site.job("mortal", {"key": "a", "entrypoint": "die_once", "kwargs": {"path": str(site.directory / "died")}})
    task = site.sql("SELECT id FROM tasks WHERE job_id = $1", int(job))[0]["id"]
    page = visit("reader").go(f"/tasks/{task}")
    expect(state(page)).to_have_text("Completed")
    expect(page.locator("#attempts")).to_contain_text("Lost")
    expect(page.locator("#attempts")).to_contain_text("ended with signal 9")
    expect(page.locator("#previews")).to_contain_text("recovered")


def test_the_log_of_a_running_task_grows_on_the_page(site, visit) -> None:
    gate = site.directory / "talked"
    words = {"path": str(gate), "words": "one <b>\u202e"}
    job = site.job("talker", {"key": "a", "entrypoint": "wait_for", "kwargs": words})
    task = site.sql("SELECT id FROM tasks WHERE job_id = $1", int(job))[0]["id"]
    page = visit("reader").go(f"/tasks/{task}")
    expect(page.locator("#log")).to_contain_text("one <b>\\u202e")
    gate.touch()
    expect(page.locator("#log")).to_contain_text("seen it")
    expect(page.locator("#log")).to_contain_text("one <b>\\u202e")
    expect(state(page)).to_have_text("Completed")
    page.goto(page.url.replace(f"/tasks/{task}", f"/jobs/{job}?view=log"))
    expect(page.locator("#log")).to_contain_text("seen it")


def test_a_large_job_is_drawn_by_kind_and_its_tasks_are_found_by_state(site, visit, window) -> None:
    chunks = [{"key": f"c{n}", "entrypoint": "say", "group": "all"} for n in range(ui_reads.DETAILED + 50)]
    job = site.job(
        "large",
        {"key": "start", "entrypoint": "fail", "kwargs": {"words": "no such file"}},
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

    async def count(reading) -> set[tuple]:
        connection = await connect(site.target)
        try:
            return {tuple(row) for row in await reading(connection, int(job))}
        finally:
            await connection.close()

    assert site.run(count(ui_reads.job_units_some)) == site.run(count(ui_reads.job_units))  # the ends are all of it
