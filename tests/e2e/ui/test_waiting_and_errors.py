"""Waiting reasons, error headlines, graphs of DAG runs and failed deploys."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.e2e.ui.conftest import SHOTS, state

FEEDS = """
name: feeds
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {kind: manual}
    outputs: [sales]
    update_strategy: append
    unique_key: [day]
    config: {function: "tests.e2e.ui.tasks:FUNCTION"}
  - name: sums
    activation: reactive
    operator: sql
    outputs: [daily]
    config: {query: "SELECT day, sum(amount) AS total FROM sales GROUP BY day"}
  - name: top
    activation: reactive
    operator: sql
    outputs: [best]
    config: {query: "SELECT max(total) AS total FROM daily"}
publish: [{output: best, name: feeds_best}]
"""


def shot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)


def test_pending_job_shows_why_it_waits(site, visit) -> None:
    site.api("POST", "/v1/queues/held/pause")
    job = {"name": "waits", "tasks": [{"key": "a", "entrypoint": "tests.e2e.ui.tasks.say", "queue": "held"}]}
    job_id = site.api("POST", "/v1/jobs", job)["id"]
    page = visit("reader").go(f"/jobs/{job_id}")
    expect(state(page)).to_have_text("Pending")
    expect(page.locator(".waits")).to_contain_text("queue 'held' is paused")
    shot(page, "job-waits")
    page.goto(f"{site.url}/jobs?status=PENDING")
    expect(page.locator("tr", has_text=job_id).locator(".waits")).to_contain_text("queue 'held' is paused")
    shot(page, "jobs-wait")
    site.sql("UPDATE queues SET paused_at = NULL, max_running = 0 WHERE name = 'held' RETURNING name")
    page.goto(f"{site.url}/jobs/{job_id}")
    expect(page.locator(".waits")).to_contain_text("queue 'held' runs 0 tasks, its limit")
    site.api("POST", f"/v1/jobs/{job_id}/cancel")
    page.goto(f"{site.url}/jobs/{job_id}")
    expect(page.locator(".waits")).to_have_count(0)


def test_error_headline_omits_the_remedy(site, visit) -> None:
    job_id = site.job("mistyped", {"key": "a", "entrypoint": "mistype", "max_attempts": 1})
    assert site.ended(job_id) == "FAILED"
    task_id = site.sql("SELECT id FROM tasks WHERE job_id = $1", int(job_id))[0]["id"]
    page = visit("reader").go(f"/tasks/{task_id}")
    expect(page.locator(".headline")).to_contain_text("no column 'contry'")
    expect(page.locator(".headline")).not_to_contain_text("Did you mean")
    expect(page.locator("#head pre.error")).to_contain_text("Did you mean 'country'?")
    shot(page, "task-error")


def test_dag_run_shows_edges_and_its_source_becomes_idle(site, visit) -> None:
    file = site.directory / "feeds.yaml"
    file.write_text(FEEDS.replace("FUNCTION", "orders"))
    site.cli("dag", "deploy", str(file))
    page = visit("admin").go("/schedules")
    row = page.locator("tr", has_text="feeds")
    expect(row.locator(".state").first).to_have_text("Idle")
    page.goto(f"{site.url}/dags/feeds")
    page.get_by_role("button", name="Fire now").click()
    expect(state(page)).to_have_text("Completed")
    page.reload()
    expect(page.locator(".graph .node")).to_have_count(3)
    expect(page.locator(".graph .edge")).to_have_count(2)
    shot(page, "dag-run")
    file.write_text(FEEDS.replace("FUNCTION", "orders").replace("max(total)", "min(total)"))
    site.cli("dag", "deploy", str(file))
    page.goto(f"{site.url}/schedules")
    expect(row.locator(".state").first).to_have_text("Idle")
    expect(row).not_to_contain_text("never")
    shot(page, "schedules")


def test_failed_deploy_is_shown_with_its_error(site, visit) -> None:
    text = FEEDS.replace("feeds", "broken").replace("FUNCTION", "orders")
    site.api("POST", "/v1/dags/deploy", {"text": text})
    assert site.ended(site.api("POST", "/v1/dags/broken/run", {"job": "fetch"})["id"]) == "COMPLETED"
    deployed = site.api("POST", "/v1/dags/deploy", {"text": text.replace("sum(amount)", "intDiv(sum(amount), 0)")})
    assert site.ended(deployed["job_id"]) == "FAILED"
    for path in ("/dags", "/dags/broken"):
        page = visit("admin").go(path)
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("Deploy of broken failed")
        expect(alert).to_contain_text("the previous version is still serving")
        expect(alert.locator(".headline")).to_contain_text("Division by zero")
        shot(page, f"failed-deploy{path.replace('/', '-')}")
    expect(page.locator("tr", has_text="Deploy failed")).to_have_count(1)
