"""Data tests, freshness and incidents: what is wrong with data is one click from the overview, with its causes."""

from __future__ import annotations

from playwright.sync_api import expect

DAG = """
name: refused
jobs:
  - name: make
    activation: source
    operator: sql
    source: {kind: manual}
    outputs: [{name: prices, tests: [{between: {column: euros, low: 0}}], freshness: {max_age: 2h}}]
    config: {query: "SELECT 41 AS id, -5 AS euros"}
publish: [{output: prices, name: refused_prices}]
"""


def test_failed_test_leads_to_rows_causes_and_incident(site, visit) -> None:
    site.api("POST", "/v1/dags/deploy", {"text": DAG})
    job_id = site.api("POST", "/v1/dags/refused/run", {})["id"]
    assert site.ended(job_id) == "FAILED"
    admin = visit("admin")
    page = admin.go("/")
    failed = page.locator("#tests tr", has_text="refused_prices")
    expect(failed).to_contain_text("Blocked")
    failed.get_by_role("link", name="between: euros from 0").click()
    expect(page.locator(".sample")).to_contain_text("Rows that fail between: euros from 0")
    expect(page.locator(".sample")).to_contain_text("-5")
    expect(visit("reader").go("/").locator("main")).not_to_contain_text("refused_prices")
    listed = site.api("GET", "/v1/data-tests?failed=true")["items"]
    assert [item["outcome"] for item in listed if item["subject"] == "refused.prices"] == ["blocked"]
    assert "between: euros from 0" in site.cli("datasets", "tests", "--failed").stdout

    site.sql("UPDATE dataset_freshness SET due_at = now() - interval '1 minute'")
    late = page.locator("#late tr", has_text="refused_prices")
    while not late.count():  # the page is cached for a moment; pytest's timeout ends the wait
        admin.go("/")
    expect(late).to_contain_text("Late")
    expect(late).to_contain_text("refused.make failed at")
    late.get_by_role("link", name="refused_prices").click()
    expect(page.locator("#late")).to_contain_text("Why is it late?")
    expect(page.locator("#late")).to_contain_text("DataTestError: The data tests of refused.prices failed")
    expect(page.locator(".facts")).to_contain_text("Late at most 2h old")
    expect(visit("reader").go("/").locator("#late")).to_have_count(0)
    incidents = {row["rule"]: row for row in site.api("GET", "/v1/incidents")["items"] if row["dag_name"] == "refused"}
    assert set(incidents) - {"deadline_missed"} == {"data_test_failed"}  # the leader may have noticed the late dataset
    opened = incidents["data_test_failed"]
    admin.go("/incidents")
    page.get_by_role("link", name=opened["title"]).click()
    incident = page.locator("#incident")
    expect(incident).to_contain_text("no row was published: between: euros from 0")
    expect(incident.locator(".command")).to_contain_text(f"aaiclick tasks show {opened['task_id']}")
    incident.get_by_role("link", name="refused.make").first.click()
    expect(page.locator("h1")).to_contain_text("refused.make")
