"""Actions on jobs, dead letters, queues and workers."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.e2e.ui.conftest import state


def test_dead_letters_are_redriven_singly_and_by_group(site, visit, window) -> None:
    def create_dead_letters(count: int) -> list[str]:
        items = [
            {
                "type": f"post:{count}:{n}",
                "entrypoint": "tests.e2e.ui.tasks.fail_until",
                "payload": {"path": str(site.directory / "postman")},
                "max_attempts": 1,
            }
            for n in range(count)
        ]
        ids = site.api("POST", "/v1/tasks", {"items": items})["ids"]
        site.until(f"SELECT count(*) = {count} AS ok FROM tasks WHERE status = 'DEAD_LETTER' AND type LIKE 'post:%'")
        return ids

    ids = create_dead_letters(4)
    (site.directory / "postman").touch()
    page = visit("writer").go(f"/tasks/{ids[0]}")
    expect(page.locator(".headline")).to_have_text("ValueError: postman is not there")
    page.get_by_role("button", name="Redrive").click()
    expect(page.locator(".toast")).to_have_text("1 task redriven.")
    expect(state(page)).to_have_text("Completed")
    page.goto(page.url.replace(f"/tasks/{ids[0]}", "/dead-letters?type=post:4:1"))
    page.locator("tbody input[type=checkbox]").first.check()
    page.locator(".selection").get_by_role("button", name="Redrive").click()
    site.until(f"SELECT status = 'COMPLETED' AS ok FROM tasks WHERE id = {ids[1]}")
    group = page.locator("#groups tr", has_text="postman")
    group.get_by_role("button", name="Redrive").click()
    message = "2 tasks redriven. Tasks cancelled because of them run again too."
    expect(page.locator(".toast")).to_have_text(message)
    expect(group).to_have_count(0)
    late = window("writer")
    late.post("/dead-letters/redrive", id=ids[0])
    assert (
        '<div class="toast bad" data-toast><span>No dead letter was redriven' in late.client.get("/dead-letters").text
    )
    site.until(f"SELECT count(*) = 4 AS ok FROM tasks WHERE status = 'COMPLETED' AND id = ANY ('{{{','.join(ids)}}}')")


def test_failed_job_is_retried_cleared_and_run_again(site, visit) -> None:
    fix_marker = site.directory / "mended"
    job = site.job(
        "mendable",
        {"key": "first", "entrypoint": "say"},
        {
            "key": "second",
            "entrypoint": "fail_until",
            "kwargs": {"path": str(fix_marker)},
            "max_attempts": 1,
            "depends_on": ["first"],
        },
        {
            "key": "third",
            "entrypoint": "say",
            "depends_on": ["second"],
            "kwargs": {"text": {"object_type": "task", "task": "second"}},
        },
    )
    site.ended(job)
    page = visit("writer").go(f"/jobs/{job}")
    expect(state(page)).to_have_text("Failed")
    expect(page.locator("#graph")).to_contain_text("Dead letter")
    fix_marker.touch()
    expect(page.locator("#head")).not_to_contain_text("Restarted")
    site.sql("UPDATE jobs SET started_at = started_at - interval '1 d' WHERE id = $1", int(job))
    page.get_by_role("button", name="Retry failed").click()
    expect(page.locator(".toast")).to_have_text("2 tasks will be retried.")
    expect(state(page)).to_have_text("Completed")
    expect(page.locator("#head")).to_contain_text("Restarted")
    expect(page.locator("#head .facts div", has_text="Duration")).not_to_contain_text("d")
    page.locator("#graph .node").first.click()
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Clear 3 tasks").click()
    expect(page.locator(".toast")).to_have_text("3 tasks cleared.")
    site.until(f"SELECT status = 'COMPLETED' AS ok FROM jobs WHERE id = {job}")
    page.goto(re.sub(r"/tasks/\d+", f"/jobs/{job}", page.url))
    page.get_by_role("button", name="Run again").click()
    page.wait_for_url(lambda url: "/jobs/" in url and job not in url)
    expect(state(page)).to_have_text("Completed")
    again = page.url.rpartition("/")[2]
    rows = site.sql(
        "SELECT kwargs->'text'->>'task_id' AS of, result FROM tasks WHERE job_id = $1 ORDER BY id", int(again)
    )
    assert len(rows) == 3
    assert rows[2]["of"] in {str(row["id"]) for row in site.sql("SELECT id FROM tasks WHERE job_id = $1", int(again))}


def test_jobs_are_paused_resumed_and_cancelled_in_bulk(site, visit) -> None:
    page = visit("writer").page
    page.on("dialog", lambda dialog: dialog.accept())
    jobs = [
        site.job(f"many {n}", {"key": "a", "entrypoint": "say", "run_at": "2099-01-01T00:00:00Z"}) for n in range(3)
    ]
    page.goto(f"{site.url}/jobs/{jobs[0]}")
    page.get_by_role("button", name="Pause").click()
    expect(state(page)).to_have_text("Paused")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(state(page)).to_have_text("Pending")
    page.goto(f"{site.url}/jobs?q=many+")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.locator("[data-all]").check()
    expect(page.locator("[data-selected]")).to_have_text("3 selected")
    page.locator(".selection").get_by_role("button", name="Cancel").click()
    expect(page.locator(".toast")).to_have_text("3 jobs cancelled.")
    expect(page.locator("tbody tr .s-cancelled")).to_have_count(3)
    assert {row["status"] for row in site.sql("SELECT status::text FROM jobs WHERE name LIKE 'many %'")} == {
        "CANCELLED"
    }


def test_queue_page_limits_pauses_and_resumes(site, visit) -> None:
    page = visit("writer").go("/queues?change=slow#limits")
    page.get_by_label("Max running").fill("3")
    page.get_by_role("button", name="Set", exact=True).click()
    row = page.locator("tr", has=page.get_by_text("slow", exact=True))
    expect(row).to_contain_text("max 3 running")
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("Paused")
    task = site.api(
        "POST", "/v1/tasks", {"items": [{"type": "t", "queue": "slow", "entrypoint": "tests.e2e.ui.tasks.say"}]}
    )["ids"][0]
    page.goto(f"{site.url}/tasks/{task}")
    expect(page.locator("[data-code=paused]")).to_contain_text("queue 'slow' is paused")
    page.goto(f"{site.url}/queues")
    row.get_by_role("button", name="Resume").click()
    site.until(f"SELECT status = 'COMPLETED' AS ok FROM tasks WHERE id = {task}")
    expect(row.locator("td").nth(6)).to_have_text("0.2")  # one task within the window of five minutes


def test_organisation_shares_are_visible_to_operators_only(site, visit, window) -> None:
    item = {"type": "t", "queue": "aside", "entrypoint": "tests.e2e.ui.tasks.say"}
    site.api("POST", "/v1/queues/aside/pause", role="other-admin")
    site.api("POST", "/v1/tasks", {"items": [item] * 3}, role="other-admin")
    site.ended(site.job("counted", {"key": "a", "entrypoint": "say"}))
    page = visit("admin").go("/queues")
    expect(page.locator("#shares tr", has_text="default").locator("td").nth(6)).to_have_text(re.compile(r"\d"))
    row = page.locator("#shares tr", has_text="Other")
    expect(row.locator("td").nth(6)).to_have_text("–")
    expect(row.locator("td").nth(2)).to_have_text("3")
    expect(row.locator("td").nth(7)).to_have_text("100 %")
    page.on("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("Paused")
    expect(row.locator("td").nth(7)).to_have_text("–")
    row.get_by_role("button", name="Resume").click()
    expect(row).to_contain_text("Busy")
    row.get_by_role("link", name="Limits").click()
    page.get_by_label("Rate per second").fill("2.5")
    page.get_by_label("Weight").fill("3")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.locator(".toast")).to_have_text("Limits of organisation Other updated.")
    page.goto(f"{site.url}/queues")
    expect(row).to_contain_text("max 2.5 per second")
    for role in ("reader", "writer", "other-reader", "other-admin"):
        text = window(role).client.get("/queues").text
        assert "Organisations" not in text, role
        assert ("aside" in text) == role.startswith("other"), role
    assert "Other" not in window("writer").client.get("/queues").text


def test_worker_is_drained(site, visit) -> None:
    worker = site.start_worker()
    site.until(f"SELECT count(*) = 1 AS ok FROM workers WHERE pid = {worker.pid}")
    newest = site.sql("SELECT id FROM workers WHERE pid = $1", worker.pid)[0]["id"]
    page = visit("admin").page
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{site.url}/workers/{newest}")
    page.get_by_role("button", name="Drain").click()
    expect(page.locator(".title .state")).to_have_text("Stopped")
    assert worker.wait(30) == 0
