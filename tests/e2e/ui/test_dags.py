"""DAGs and datasets: compared, rolled back, traced, paused, fired, backfilled, and shown to whom they are for."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.e2e.ui.conftest import SHOP, Window, state


def test_dag_diff_and_rollback(visit, things) -> None:
    page = visit("admin").page
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(visit("admin").url + "/dags/shop")
    expect(page.locator(".graph .node")).to_have_count(3)
    page.get_by_role("link", name="Roll back …").click()
    expect(page.locator(".diff .added")).to_contain_text(["+++", "id > 0"])
    page.get_by_role("link", name="Cancel").click()
    expect(page.locator(".diff .gone")).to_contain_text(["--- serves", "id > 1"])
    expect(page.locator(".diff .added")).to_contain_text(["+++", "id > 0"])
    page.get_by_role("link", name="Roll back to this version …").click()
    expect(page.locator("h1")).to_contain_text("Roll shop back to version")
    expect(page.locator(".diff .added")).to_contain_text(["+++", "id > 0"])
    page.get_by_role("button", name="Roll back").click()
    expect(page.locator(".toast")).to_contain_text("is now serving.")
    expect(page.locator("pre.code")).to_contain_text("id > 0")
    expect(page.get_by_role("link", name="Roll back …")).to_have_count(0)


def test_dataset_lineage_requires_a_role(visit, window, things) -> None:
    page = visit("admin").go("/datasets")
    page.get_by_role("link", name="shop_daily").click()
    expect(page.locator(".graph .node")).to_have_count(6)
    expect(page.locator(".graph .marked")).to_contain_text("shop_daily")
    expect(visit("reader").go("/datasets").locator(".empty-title")).to_have_text("No datasets")
    result_pages = [window(role).client.get("/search?q=Shop_d").text for role in ("admin", "reader", "other-admin")]
    assert ["shop_daily</span>" in text for text in result_pages] == [True, False, False]


def test_dag_text_requires_read_permission_for_all_its_datasets(site, window, things) -> None:
    names = ("shop_daily", "orders", "FROM raw")
    rows = site.sql("SELECT yaml_hash FROM dag_versions WHERE dag_name = 'shop' ORDER BY created_at")
    older, newer = (row["yaml_hash"] for row in rows)
    pages = ("/dags/shop", f"/dags/shop?version={older}")
    other = SHOP.replace("output: daily, name: shop_daily", "output: daily, name: elsewhere")

    def read_pages(role: str) -> str:
        with Window(site, None) as browser:
            browser.client.cookies.set("aaiclick_session", site.session(role))
            return "".join(browser.client.get(page).text for page in pages)

    for role in ("reader", "writer", "ada"):
        text = read_pages(role)
        assert "Not shown" in text, role
        assert not any(name in text for name in names), role
    assert all(name in read_pages("admin") for name in names)
    for role in ("reader", "writer"):
        changes = site.api("POST", "/v1/dags/diff", {"text": other}, role)
        assert "shop_daily" not in str(changes), role
        assert changes, role
    assert "shop_daily" in str(site.api("POST", "/v1/dags/diff", {"text": other}))
    for version in (older, newer):
        assert "shop_daily" not in str(site.api("POST", "/v1/dags/shop/rollback", {"to": version}, "writer"))
    role = site.api("POST", "/v1/roles", {"slug": "analyst", "name": "Analyst"})["id"]
    user = site.sql("SELECT id FROM users WHERE external_id = 'ada'")[0]["id"]
    site.api("PUT", f"/v1/roles/{role}/members/{user}")
    for name in ("shop_daily", "shop.orders"):
        site.api("PUT", f"/v1/datasets/{name}/readers", {"roles": ["analyst"]})
    assert "Not shown" in read_pages("ada")
    site.api("PUT", "/v1/datasets/shop.raw/readers", {"roles": ["analyst"]})
    assert all(name in read_pages("ada") for name in names)


MARKET = """
name: market
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {kind: cron, schedule: "0 6 * * *"}
    outputs: [{name: sales, partition_by: day}]
    update_strategy: append
    unique_key: [day]
    config: {function: "tests.e2e.ui.tasks:orders"}
  - name: sums
    activation: reactive
    operator: sql
    execution_strategy: PerPartition
    outputs: [daily]
    config: {query: "SELECT day, sum(amount) AS total FROM sales GROUP BY day"}
publish: [{output: daily, name: market_daily}]
"""


def test_dag_pause_fire_backfill_and_dataset_preview(site, visit, window) -> None:
    file = site.directory / "market.yaml"
    file.write_text(MARKET)
    site.cli("dag", "deploy", str(file), "--no-wait")
    page = visit("writer").go("/dags/market")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("h1 + .state")).to_have_text("Paused")
    expect(page.get_by_role("button", name="Fire now")).to_have_count(0)
    page.locator(".head").get_by_role("button", name="Resume").click()
    expect(page.locator("h1 + .state")).to_have_text("Serving")
    page.goto(f"{site.url}/schedules")
    page.locator("tr", has_text="market").get_by_role("button", name="Fire now").click()
    expect(page.locator(".toast")).to_have_text("Started fetch.")
    expect(state(page)).to_have_text("Completed")
    page.goto(f"{site.url}/dags/market")
    page.get_by_role("link", name="Backfill").click()
    expect(page.locator("main")).to_contain_text("fetch: times without an offset are in UTC")
    page.get_by_label("From").fill("tomorrow")
    page.get_by_label("To", exact=True).fill("2026-01-02")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("'tomorrow' is neither a day nor a time")
    page.get_by_label("From").fill("2026-01-01")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("tbody tr")).to_contain_text(["2026-01-01T06:00", "2026-01-02T06:00"])
    assert site.sql("SELECT count(*) FROM jobs WHERE name = 'market.fetch'")[0]["count"] == 1
    page.get_by_role("button", name="Run 2").click()
    expect(page.locator(".toast")).to_have_text("Started 2 runs of fetch.")
    expect(page.locator(".runs .s-completed")).to_have_count(3)
    of_partitions = "/dags/market/backfill?job=sums&from=2026-01-02&to=2026-01-31"
    page.goto(f"{site.url}{of_partitions}")
    expect(page.locator("main")).to_contain_text("0 of 1 would run.")
    expect(page.locator("main")).to_contain_text("you may not read the datasets")  # partition names are data
    expect(page.locator("tbody tr")).to_have_count(0)
    page = visit("admin").go(of_partitions)
    expect(page.locator("tbody tr")).to_have_text("Completed2026-01-02")  # from the previous runs
    expect(page.get_by_role("button", name="Run")).to_have_count(0)
    page.goto(f"{site.url}/datasets")
    page.get_by_role("link", name="market_daily").click()
    expect(page.locator("#preview tbody tr")).to_have_count(3)
    expect(page.locator("#preview")).to_contain_text("2026-01-02")
    reader = window("reader")
    assert reader.client.get(page.url).status_code == 404
    assert reader.client.get("/dags/market/backfill").status_code == 403
    assert [reader.post(f"/dags/market/{action}").status_code for action in ("fire", "pause", "backfill")] == [403] * 3
    actions = {row["action"] for row in site.sql("SELECT action FROM audit_log WHERE target = 'market'")}
    assert actions == {"dag.deploy", "dag.pause", "dag.resume", "dag.run", "dag.backfill"}
