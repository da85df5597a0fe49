"""Navigation by keyboard, without scripts, and as a reader."""

from __future__ import annotations

from playwright.sync_api import expect


def test_readers_see_no_actions(visit, things) -> None:
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
        "/approvals",
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


def test_keyboard_navigation(visit, things) -> None:
    visitor = visit("writer")
    page = visitor.go("/jobs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("tr.focused")).to_have_count(1)
    page.keyboard.press("x")
    expect(page.locator("[data-selected]")).to_have_text("1 selected")
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    visitor.wait_for_scripts()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.type("nothing has such a name")
    expect(page.locator("dialog [role=status]")).to_have_text("No results")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type("hop")
    expect(page.locator("dialog .results a").first).to_have_attribute("href", "/dags/shop")
    expect(page.locator("dialog [role=status]")).to_have_text("")
    page.get_by_role("combobox").fill("nightly")
    expect(page.locator("dialog .results a").first).to_contain_text("nightly report")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="nightly report")).to_be_visible()
    visitor.wait_for_scripts()
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
    page.locator(".selection").get_by_role("button", name="Cancel").click()
    expect(page.locator(".toast")).to_have_text("1 job cancelled.")
    expect(page.locator("tbody .s-cancelled")).to_have_count(1)
    page.goto(f"{site.url}/jobs/{things.done}")
    expect(page.locator("#graph .node")).to_have_count(6)
    page.get_by_label("Collapse group chunks").click()
    expect(page.locator("#graph")).to_contain_text("▸ chunks")
    page.get_by_role("button", name="Light theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.get_by_role("searchbox", name="Search").fill(things.failed)
    page.get_by_role("searchbox", name="Search").press("Enter")
    expect(page.locator(".results a").first).to_contain_text("import orders")
