"""Data tests: a red test with its failing rows is one click from the overview."""

from __future__ import annotations

from playwright.sync_api import expect

DAG = """
name: refused
jobs:
  - name: make
    activation: source
    operator: sql
    source: {kind: manual}
    outputs: [{name: prices, tests: [{between: {column: euros, low: 0}}]}]
    config: {query: "SELECT 41 AS id, -5 AS euros"}
publish: [{output: prices, name: refused_prices}]
"""


def test_failed_test_leads_from_the_overview_to_its_failing_rows(site, visit) -> None:
    site.api("POST", "/v1/dags/deploy", {"text": DAG})
    job_id = site.api("POST", "/v1/dags/refused/run", {})["id"]
    assert site.ended(job_id) == "FAILED"
    page = visit("admin").go("/")
    failed = page.locator("#tests tr", has_text="refused_prices")
    expect(failed).to_contain_text("Blocked")
    failed.get_by_role("link", name="between: euros from 0").click()
    expect(page.locator(".sample")).to_contain_text("Rows that fail between: euros from 0")
    expect(page.locator(".sample")).to_contain_text("-5")
    expect(visit("reader").go("/").locator("main")).not_to_contain_text("refused_prices")
    listed = site.api("GET", "/v1/data-tests?failed=true")["items"]
    assert [item["outcome"] for item in listed if item["subject"] == "refused.prices"] == ["blocked"]
    assert "between: euros from 0" in site.cli("datasets", "tests", "--failed").stdout
