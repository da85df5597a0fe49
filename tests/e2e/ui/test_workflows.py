"""Approvals, waits, child jobs and schedules in the browser."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.e2e.ui.conftest import state

FORM = {
    "title": "Payment",
    "type": "object",
    "properties": {
        "euros": {"type": "integer", "minimum": 1, "title": "Euros"},
        "account": {"type": "string", "enum": ["rent", "travel"], "default": "rent", "title": "Account"},
    },
    "required": ["euros"],
}


def ask(site, title: str) -> str:
    question = {"title": title, "to": "writer", "on_reject": "skip", "show": [{"city": "Rom", "n": 7}], "form": FORM}
    tasks = [
        {"key": "ask", "entrypoint": "aaiclick.orchestration.approvals.run_approval", "kwargs": question},
        {"key": "pay", "entrypoint": "tests.e2e.ui.tasks.say", "depends_on": ["ask"]},
    ]
    job = site.api("POST", "/v1/jobs", {"name": "payments", "tasks": tasks})["id"]
    site.until(f"SELECT count(*) = 1 AS ok FROM approvals WHERE title = '{title}'")
    return job


def test_person_approves_with_the_form_and_the_job_goes_on(site, visit) -> None:
    job = ask(site, "Pay the rent?")
    page = visit("writer").go(f"/jobs/{job}")
    expect(page.locator(".waits").first).to_contain_text("waits for writer to decide: Pay the rent?")
    page.get_by_role("link", name="Approvals").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Waiting for people")
    page.get_by_role("link", name="Pay the rent?").click()
    expect(page.locator("#shown tbody tr")).to_contain_text("Rom")
    page.get_by_label("Euros").fill("0")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("alert")).to_contain_text("euros: Input should be greater than or equal to 1")
    page.get_by_label("Euros").fill("700")
    page.get_by_label("Account").select_option("travel")
    page.get_by_label("Reason").fill("checked")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".toast")).to_have_text("Pay the rent?: approved.")
    assert site.ended(job) == "COMPLETED"
    [row] = site.sql("SELECT answers::text, reason FROM approvals WHERE title = 'Pay the rent?'")
    assert (row["answers"], row["reason"]) == ('{"euros": 700, "account": "travel"}', "checked")
    page.get_by_role("link", name="All decisions").click()
    expect(page.locator("tr", has_text="Pay the rent?")).to_contain_text("Approved")


def test_link_rejects_without_an_account_and_dependents_are_skipped(site, visit) -> None:
    job = ask(site, "Sell the house?")
    page = visit("writer").go("/approvals")
    page.get_by_role("link", name="Sell the house?").click()
    page.get_by_label("Recipient").fill("ada@example.org")
    page.get_by_role("button", name="Create link").click()
    url = page.locator("#links code").inner_text()
    guest = visit(None).go(url.removeprefix(site.url))
    expect(guest.locator("main")).to_contain_text("Rom")
    guest.get_by_role("button", name="Reject").click()
    expect(guest.locator(".toast")).to_have_text("Your decision was recorded.")
    expect(guest.get_by_role("button", name="Approve")).to_have_count(0)
    assert site.ended(job) == "COMPLETED"
    statuses = {row["status"] for row in site.sql("SELECT status::text FROM tasks WHERE job_id = $1", int(job))}
    assert statuses == {"COMPLETED", "SKIPPED"}


def test_page_of_a_job_shows_its_children(site, visit) -> None:
    job = site.job("family", {"key": "parent", "entrypoint": "submit_child"})
    assert site.ended(job) == "COMPLETED"
    page = visit("reader").go(f"/jobs/{job}")
    expect(page.locator("#tree tbody tr")).to_have_count(2)
    page.locator("#tree").get_by_role("link", name="child of the family").click()
    expect(page.locator("h1")).to_have_text("child of the family")
    page.get_by_role("link", name=f"job {job}").click()
    expect(page.locator("h1")).to_have_text("family")


def test_schedule_is_fired_and_paused(site, visit) -> None:
    schedule = {"name": "hourly words", "entrypoint": "tests.e2e.ui.tasks.say", "cron": "0 * * * *"}
    site.api("POST", "/v1/schedules", schedule)
    page = visit("writer").go("/schedules/hourly%20words")
    page.get_by_role("button", name="Fire now").click()
    expect(page.locator(".toast")).to_have_text("Started hourly words.")
    expect(state(page)).to_have_text("Completed")
    page.goto(f"{site.url}/schedules")
    row = page.locator("tr", has_text="hourly words")
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("Paused")
