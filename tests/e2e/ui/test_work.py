"""People at work: watching, understanding, acting; with real jobs on a real worker."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from aaiclick.store import ui_reads
from aaiclick.store.engine import connect
from tests.e2e.ui.conftest import SHOP, Window

SHIFTS = """() => { window.kept = true; window.shifts = 0;
new PerformanceObserver((list) => { for (const e of list.getEntries()) window.shifts += e.value; })
  .observe({ type: 'layout-shift', buffered: false }); }"""


def state(page):
    return page.locator("#head .title .state")


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
    job = site.job("talker", {"key": "a", "entrypoint": "wait_for", "kwargs": {"path": str(gate), "words": "one <b>"}})
    task = site.sql("SELECT id FROM tasks WHERE job_id = $1", int(job))[0]["id"]
    page = visit("reader").go(f"/tasks/{task}")
    expect(page.locator("#log")).to_contain_text("one <b>")
    gate.touch()
    expect(page.locator("#log")).to_contain_text("seen it")
    expect(state(page)).to_have_text("Completed")
    page.goto(page.url.replace(f"/tasks/{task}", f"/jobs/{job}?view=log"))
    expect(page.locator("#log")).to_contain_text("seen it")


def test_dead_letters_are_redriven_one_a_group_and_all(site, visit) -> None:
    def dead(count: int) -> list[str]:
        items = [
            {
                "type": f"post:{count}:{n}",
                "entrypoint": "tests.e2e.ui.steps.fail_until",
                "payload": {"path": str(site.directory / "postman")},
                "max_attempts": 1,
            }
            for n in range(count)
        ]
        ids = site.api("POST", "/v1/tasks", {"items": items})["ids"]
        site.until(f"SELECT count(*) = {count} AS ok FROM tasks WHERE status = 'DEAD_LETTER' AND type LIKE 'post:%'")
        return ids

    ids = dead(4)
    (site.directory / "postman").touch()
    page = visit("writer").go(f"/tasks/{ids[0]}")
    expect(page.locator(".headline")).to_have_text("ValueError: postman is not there")
    page.get_by_role("button", name="Redrive").click()
    expect(page.locator(".toast")).to_have_text("1 task started over.")
    expect(state(page)).to_have_text("Completed")
    page.goto(page.url.replace(f"/tasks/{ids[0]}", "/dead-letters?type=post:4:1"))
    page.locator("tbody input[type=checkbox]").first.check()
    page.locator(".picked").get_by_role("button", name="Redrive").click()
    site.until(f"SELECT status = 'COMPLETED' AS ok FROM tasks WHERE id = {ids[1]}")
    group = page.locator("#groups tr", has_text="postman")
    group.get_by_role("button", name="Redrive").click()
    words = "2 tasks started over. What waited for dead letters comes back with them."
    expect(page.locator(".toast")).to_have_text(words)
    expect(group).to_have_count(0)
    site.until(f"SELECT count(*) = 4 AS ok FROM tasks WHERE status = 'COMPLETED' AND id = ANY ('{{{','.join(ids)}}}')")


def test_a_failed_job_shows_why_and_is_retried_cleared_and_run_again(site, visit) -> None:
    mended = site.directory / "mended"
    job = site.job(
        "mendable",
        {"key": "first", "entrypoint": "say"},
        {
            "key": "second",
            "entrypoint": "fail_until",
            "kwargs": {"path": str(mended)},
            "max_attempts": 1,
            "depends_on": ["first"],
        },
        {
            "key": "third",
            "entrypoint": "say",
            "depends_on": ["second"],
            "kwargs": {"words": {"object_type": "task", "task": "second"}},
        },
    )
    site.ended(job)
    page = visit("writer").go(f"/jobs/{job}")
    expect(state(page)).to_have_text("Failed")
    expect(page.locator("#graph")).to_contain_text("Dead letter")
    mended.touch()
    page.get_by_role("button", name="Retry failed").click()
    expect(state(page)).to_have_text("Completed")
    page.locator("#graph .node").first.click()
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Clear 3 tasks").click()
    expect(page.locator(".toast")).to_have_text("3 tasks run again.")
    site.until(f"SELECT status = 'COMPLETED' AS ok FROM jobs WHERE id = {job}")
    page.goto(re.sub(r"/tasks/\d+", f"/jobs/{job}", page.url))
    page.get_by_role("button", name="Run again").click()
    page.wait_for_url(lambda url: "/jobs/" in url and job not in url)
    expect(state(page)).to_have_text("Completed")
    again = page.url.rpartition("/")[2]
    rows = site.sql(
        "SELECT kwargs->'words'->>'task_id' AS of, result FROM tasks WHERE job_id = $1 ORDER BY id", int(again)
    )
    assert len(rows) == 3
    assert rows[2]["of"] in {str(row["id"]) for row in site.sql("SELECT id FROM tasks WHERE job_id = $1", int(again))}


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


def test_jobs_are_paused_resumed_and_cancelled_together(site, visit) -> None:
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
    expect(page.locator("[data-picked]")).to_have_text("3 picked")
    page.locator(".picked").get_by_role("button", name="Cancel").click()
    expect(page.locator(".toast")).to_have_text("3 jobs cancelled.")
    expect(page.locator("tbody tr .s-cancelled")).to_have_count(3)
    assert {row["status"] for row in site.sql("SELECT status::text FROM jobs WHERE name LIKE 'many %'")} == {
        "CANCELLED"
    }


def test_a_task_says_why_it_waits_and_a_queue_is_paused_limited_and_let_go(site, visit) -> None:
    page = visit("writer").go("/queues?change=slow#limits")
    page.get_by_label("At once, at most").fill("3")
    page.get_by_role("button", name="Set", exact=True).click()
    row = page.locator("tr", has=page.get_by_text("slow", exact=True))
    expect(row).to_contain_text("at most 3 at once")
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("Paused")
    task = site.api(
        "POST", "/v1/tasks", {"items": [{"type": "t", "queue": "slow", "entrypoint": "tests.e2e.ui.steps.say"}]}
    )["ids"][0]
    page.goto(f"{site.url}/tasks/{task}")
    expect(page.locator("[data-code=paused]")).to_contain_text("queue 'slow' is paused")
    page.goto(f"{site.url}/queues")
    row.get_by_role("button", name="Resume").click()
    site.until(f"SELECT status = 'COMPLETED' AS ok FROM tasks WHERE id = {task}")


def test_who_runs_the_installation_sees_what_every_organisation_gets_and_nobody_else_does(site, visit, window) -> None:
    item = {"type": "t", "queue": "aside", "entrypoint": "tests.e2e.ui.steps.say"}
    site.api("POST", "/v1/queues/aside/pause", role="other-admin")
    site.api("POST", "/v1/tasks", {"items": [item] * 3}, role="other-admin")
    page = visit("admin").go("/queues")
    row = page.locator("#shares tr", has_text="Other")
    expect(row.locator("td").nth(2)).to_have_text("3")
    expect(row.locator("td").nth(6)).to_have_text("100 %")
    page.on("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("Paused")
    expect(row.locator("td").nth(6)).to_have_text("–")
    row.get_by_role("button", name="Resume").click()
    expect(row).to_contain_text("Busy")
    row.get_by_role("link", name="Limits").click()
    page.get_by_label("A second, at most").fill("2.5")
    page.get_by_label("Weight").fill("3")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.locator(".toast")).to_have_text("Limits of Other are set.")
    page.goto(f"{site.url}/queues")
    expect(row).to_contain_text("at most 2.5 a second")
    for role in ("reader", "writer", "other-reader", "other-admin"):
        text = window(role).client.get("/queues").text
        assert "Organisations" not in text, role
        assert ("aside" in text) == role.startswith("other"), role
    assert "Other" not in window("writer").client.get("/queues").text


def test_a_worker_is_drained_from_its_page(site, visit) -> None:
    worker = site.start_worker()
    site.until(f"SELECT count(*) = 1 AS ok FROM workers WHERE pid = {worker.pid}")
    newest = site.sql("SELECT id FROM workers WHERE pid = $1", worker.pid)[0]["id"]
    page = visit("admin").page
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{site.url}/workers/{newest}")
    page.get_by_role("button", name="Drain").click()
    expect(page.locator(".title .state")).to_have_text("Stopped")
    assert worker.wait(30) == 0


def test_who_only_reads_finds_no_buttons(visit, things) -> None:
    visitor = visit("reader")
    for path in (
        "/",
        "/jobs",
        f"/jobs/{things.failed}",
        f"/jobs/{things.running}",
        f"/tasks/{things.dead_task}",
        "/queues",
        "/dead-letters?list=1",
        "/workers",
        "/objects",
        "/dags/shop",
        "/schedules",
    ):
        page = visitor.go(path)
        forms = page.eval_on_selector_all(
            "form[method=post]", "(all) => all.map((form) => form.getAttribute('action'))"
        )
        assert {form for form in forms if form not in ("/theme", "/sign-out")} <= {
            "/jobs/cancel",
            "/dead-letters/redrive",
        }
        assert page.locator("main button:not(.copy):not(.pill):not([data-zoom]):visible").all_inner_texts() in (
            [],
            ["Search"],
        )
    expect(page.get_by_role("link", name="Admin")).to_have_count(0)


def test_everything_is_reached_by_the_keyboard(visit, things) -> None:
    page = visit("writer").go("/jobs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("tr.focused")).to_have_count(1)
    page.keyboard.press("x")
    expect(page.locator("[data-picked]")).to_have_text("1 picked")
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.type("nightly")
    expect(page.locator("dialog .results a").first).to_contain_text("nightly report")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="nightly report")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")


def test_forms_work_without_scripts(site, visit, things) -> None:
    visitor = visit("writer", java_script_enabled=False)
    page = visitor.page
    job = site.job("plain", {"key": "a", "entrypoint": "say", "run_at": "2099-01-01T00:00:00Z"})
    page.goto(f"{site.url}/jobs")
    page.get_by_label("Name contains").fill("plain")
    page.get_by_role("button", name="Search").click()
    page.locator(f"input[value='{job}']").check()
    page.locator(".picked").get_by_role("button", name="Cancel").click()
    expect(page.locator(".toast")).to_have_text("1 job cancelled.")
    expect(page.locator("tbody .s-cancelled")).to_have_count(1)
    page.goto(f"{site.url}/jobs/{things.done}")
    expect(page.locator("#graph .node")).to_have_count(6)
    page.get_by_label("Shut group chunks").click()
    expect(page.locator("#graph")).to_contain_text("▸ chunks")
    page.get_by_role("button", name="Light theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.get_by_role("searchbox", name="Search").fill(things.failed)
    page.get_by_role("searchbox", name="Search").press("Enter")
    expect(page.locator(".results a").first).to_contain_text("import orders")


def test_a_dag_is_compared_with_an_older_version_and_rolled_back(visit, things) -> None:
    page = visit("admin").page
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(visit("admin").url + "/dags/shop")
    expect(page.locator(".graph .node")).to_have_count(3)
    page.locator("table a.mono").nth(1).click()
    expect(page.locator(".diff .gone")).to_contain_text(["--- serves", "id > 1"])
    expect(page.locator(".diff .added")).to_contain_text(["+++", "id > 0"])
    page.get_by_role("button", name="Let this version serve").click()
    expect(page.locator(".toast")).to_contain_text("serves.")
    expect(page.locator("pre.code")).to_contain_text("id > 0")


def test_datasets_are_traced_by_an_admin_and_hidden_from_who_has_no_role(visit, things) -> None:
    page = visit("admin").go("/datasets")
    page.get_by_role("link", name="shop_daily").click()
    expect(page.locator(".graph .node")).to_have_count(6)
    expect(page.locator(".graph .marked")).to_contain_text("shop_daily")
    expect(visit("reader").go("/datasets").locator(".empty-title")).to_have_text("No datasets")


def test_the_text_of_a_dag_is_for_those_who_may_read_all_that_it_names(site, window, things) -> None:
    names = ("shop_daily", "orders", "FROM raw")
    rows = site.sql("SELECT yaml_hash FROM dag_versions WHERE dag_name = 'shop' ORDER BY created_at")
    older, newer = (row["yaml_hash"] for row in rows)
    pages = ("/dags/shop", f"/dags/shop?version={older}")
    other = SHOP.replace("output: daily, name: shop_daily", "output: daily, name: elsewhere")

    def told(role: str) -> str:
        with Window(site, None) as browser:
            browser.client.cookies.set("aaiclick_session", site.session(role))
            return "".join(browser.client.get(page).text for page in pages)

    for role in ("reader", "writer", "ada"):
        text = told(role)
        assert "Not shown" in text, role
        assert not any(name in text for name in names), role
    assert all(name in told("admin") for name in names)
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
    assert "Not shown" in told("ada")
    site.api("PUT", "/v1/datasets/shop.raw/readers", {"roles": ["analyst"]})
    assert all(name in told("ada") for name in names)


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
    config: {function: "tests.e2e.ui.steps:orders"}
  - name: sums
    activation: reactive
    operator: sql
    execution_strategy: PerPartition
    outputs: [daily]
    config: {query: "SELECT day, sum(amount) AS total FROM sales GROUP BY day"}
publish: [{output: daily, name: market_daily}]
"""


def test_a_dag_is_paused_fired_and_backfilled_after_a_look_and_its_rows_are_seen(site, visit, window) -> None:
    file = site.directory / "market.yaml"
    file.write_text(MARKET)
    site.cli("dag", "deploy", str(file), "--no-wait")
    page = visit("writer").go("/dags/market")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("h1 + .state")).to_have_text("Paused")
    expect(page.get_by_role("button", name="Fire now")).to_have_count(0)
    page.locator(".head").get_by_role("button", name="Resume").click()
    expect(page.locator("h1 + .state")).to_have_text("Serves")
    page.goto(f"{site.url}/schedules")
    page.locator("tr", has_text="market").get_by_role("button", name="Fire now").click()
    expect(page.locator(".toast")).to_have_text("fetch is started.")
    expect(state(page)).to_have_text("Completed")
    page.goto(f"{site.url}/dags/market")
    page.get_by_role("link", name="Backfill").click()
    page.get_by_label("From").fill("tomorrow")
    page.get_by_label("To", exact=True).fill("2026-01-02")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("'tomorrow' is neither a day nor a time")
    page.get_by_label("From").fill("2026-01-01")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("tbody tr")).to_contain_text(["2026-01-01T06:00", "2026-01-02T06:00"])
    assert site.sql("SELECT count(*) FROM jobs WHERE name = 'market.fetch'")[0]["count"] == 1
    page.get_by_role("button", name="Run 2").click()
    expect(page.locator(".toast")).to_have_text("2 runs of fetch are started.")
    expect(page.locator(".runs .s-completed")).to_have_count(3)
    page.goto(f"{site.url}/dags/market/backfill?job=sums&from=2026-01-02&to=2026-01-31")
    expect(page.locator("tbody tr")).to_have_text("Completed2026-01-02")  # the runs before have made it
    expect(page.get_by_role("button", name="Run")).to_have_count(0)
    page = visit("admin").go("/datasets")
    page.get_by_role("link", name="market_daily").click()
    expect(page.locator("#preview tbody tr")).to_have_count(3)
    expect(page.locator("#preview")).to_contain_text("2026-01-02")
    reader = window("reader")
    assert reader.client.get(page.url).status_code == 404
    assert reader.client.get("/dags/market/backfill").status_code == 403
    assert [reader.post(f"/dags/market/{deed}").status_code for deed in ("fire", "pause", "backfill")] == [403] * 3
    deeds = {row["action"] for row in site.sql("SELECT action FROM audit_log WHERE target = 'market'")}
    assert deeds == {"dag.pause", "dag.resume", "dag.fire", "dag.backfill"}


HOSTILE = (
    "<script>boom()</script>",
    '"><img src=x onerror=boom()>',
    "'-boom()-'",
    "</title><svg onload=boom()>",
    "{{ 7 * 7 }} {% raw %}",
    "javascript:boom()",
    "</pre><iframe srcdoc='<script>parent.boom()</script>'>",
)


@pytest.fixture(scope="module")
def hostile(site) -> dict[str, str]:
    """Everything that has a name or says something, in words that want to be run."""
    words = " ".join(HOSTILE)
    job = site.job(
        words[:190],
        {"key": words[:190], "entrypoint": "fail", "kwargs": {"words": words}, "group": "g"},
        {"key": "talk", "entrypoint": "say", "kwargs": {"words": words}},
        groups=[{"key": "g", "name": words[:190]}],
    )
    item = site.api(
        "POST",
        "/v1/tasks",
        {
            "items": [
                {
                    "type": words[:190],
                    "queue": words[:190],
                    "entrypoint": "tests.e2e.ui.steps.fail",
                    "payload": {"words": words},
                    "max_attempts": 1,
                }
            ]
        },
    )["ids"][0]
    site.api("POST", "/v1/keys", {"name": words[:190], "scopes": ["reader"]})
    site.api("POST", "/v1/users", {"external_id": words, "role": "reader", "email": words[:190]})
    site.api("POST", "/v1/orgs", {"name": words[:190], "slug": "hostile"})
    site.ended(job)
    site.until(f"SELECT completed_at IS NOT NULL AS ok FROM tasks WHERE id = {item}")
    task = site.sql("SELECT id FROM tasks WHERE job_id = $1 AND status <> 'COMPLETED'", int(job))[0]["id"]
    return {"job": job, "task": str(task), "item": item}


def test_nothing_that_anybody_wrote_is_run(site, visit, hostile) -> None:
    visitor = visit("admin")
    booms: list[str] = []
    visitor.page.expose_function("boom", lambda: booms.append(visitor.page.url))
    visitor.page.on("dialog", lambda dialog: booms.append(dialog.message))
    job, task, item = hostile["job"], hostile["task"], hostile["item"]
    for path in (
        "/",
        "/jobs",
        f"/jobs/{job}",
        f"/jobs/{job}?view=timeline",
        f"/jobs/{job}?view=tasks",
        f"/jobs/{job}?view=log",
        f"/jobs/{job}?view=events",
        f"/tasks/{task}",
        f"/tasks/{item}",
        f"/tasks/{task}/clear",
        "/queues",
        "/admin",
        "/dead-letters?list=1",
        "/admin?view=users",
        "/admin?view=orgs",
        "/admin?view=audit",
        "/search?q=%3Cscript%3Eboom()%3C/script%3E",
        "/jobs?q=%22%3E%3Cimg%20src=x%20onerror=boom()%3E",
    ):
        page = visitor.go(path)
        assert page.locator("img, iframe, main script, main style").count() == 0, path
    page = visitor.go("/search")
    page.keyboard.press("Control+k")
    page.keyboard.type("<script>")
    expect(page.locator("dialog .results a").first).to_contain_text("<script>boom()</script>")
    assert booms == []
