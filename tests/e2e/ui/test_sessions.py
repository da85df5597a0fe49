"""Sessions, permissions, CSRF protection and security headers of pages."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from uuid import UUID

import httpx
import pytest
from playwright.sync_api import expect

from aaiclick.operations.actor import Permission
from aaiclick.server.ui.pages import ALL_PAGES

POSTS = [(page.path, page.permission) for pages in ALL_PAGES for page in pages.routes if page.method == "POST"]
GETS = [(page.path, page.permission) for pages in ALL_PAGES for page in pages.routes if page.method == "GET"]


def fill(path: str) -> str:
    return re.sub(r"{\w+(:\w+)?}", "1", path.replace("{dataset_id:uuid}", str(UUID(int=1))))


def test_sign_in_with_an_api_key_and_sign_out(site, visit) -> None:
    visitor = visit(None)
    page = visitor.go("/")
    page.fill("#credential", site.keys["admin"])
    page.press("#credential", "Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    cookies = {cookie["name"]: cookie for cookie in visitor.context.cookies()}
    assert cookies["aaiclick_session"]["httpOnly"]
    assert cookies["aaiclick_session"]["sameSite"] == "Lax"
    page.get_by_role("button", name="Dark theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in to aaiclick")).to_be_visible()
    page.goto(visitor.url + "/jobs")
    expect(page).to_have_url(re.compile(r"/sign-in\?next=%2Fjobs"))


@pytest.mark.parametrize("credential", ["", "aai_x", "aai_abcdefghijkl_" + "x" * 43, "no.such.token"])
def test_invalid_credential_cannot_sign_in(site, window, credential: str) -> None:
    browser = window(None)
    answer = browser.post("/sign-in", credential=credential)
    assert answer.status_code == 401
    assert "Invalid credential." in answer.text
    assert browser.client.get("/jobs").status_code == 303


def test_worker_key_cannot_sign_in(site, window) -> None:
    assert window(None).post("/sign-in", credential=site.keys["worker"]).status_code == 401


def test_session_cookie_has_no_key_and_no_api_access(site, window) -> None:
    browser = window("admin")
    assert not any(part in str(browser.client.cookies) for part in site.keys["admin"].split("_")[1:])
    assert browser.client.get("/v1/jobs").status_code == 401


def test_every_page_checks_its_permission(site, window) -> None:
    nobody = window(None).client
    windows = {role: window(role) for role in ("reader", "writer", "admin", "other-admin")}
    allowed = {
        "reader": {"public", "reader"}, "writer": {"public", "reader", "writer"}, "other-admin": {"public", "reader",
        "writer", "admin"}, "admin": {"public", "reader", "writer", "admin", "operator"},
    }  # fmt: skip
    for path, permission in GETS:
        if path in ("/live", "/tasks/{task_id:id}/log"):
            continue  # streams
        if permission is not Permission.PUBLIC:
            assert nobody.get(fill(path)).status_code == 303, path
        for role, browser in windows.items():
            assert (browser.client.get(fill(path)).status_code == 403) == (permission not in allowed[role]), (
                path,
                role,
            )
    for path, permission in POSTS:
        for role, browser in windows.items():
            if path not in ("/sign-out", "/sign-in"):
                answer = browser.post(fill(path), id="1", name="nobodys")
                assert (answer.status_code == 403) == (permission not in allowed[role]), (path, role)
                assert answer.status_code < 500, (path, role)


def test_forms_without_csrf_token_are_refused(site, window) -> None:
    browser = window("admin")
    for path, _ in POSTS:
        assert browser.client.post(fill(path), data={"id": "1"}).status_code == 403, path
        assert browser.client.post(fill(path), data={"csrf": "0" * 64}).status_code == 403, path
        foreign = browser.client.post(
            fill(path), data={"csrf": browser.csrf}, headers={"Origin": "http://evil.example"}
        )
        assert foreign.status_code == 403, path
    other = window("admin")
    assert browser.client.post("/theme", data={"csrf": other.csrf}).status_code == 403


def test_redirects_are_restricted_to_local_urls(site, window) -> None:
    browser = window("admin")
    for url in (
        "//evil.example",
        "/\\evil.example",
        "http://evil.example",
        "/\t/evil.example",
        "javascript:alert(1)",
    ):
        assert browser.post("/theme", theme="dark", back=url).headers["location"] == "/", url
    assert browser.post("/theme", theme="dark", back="/jobs?q=x").headers["location"] == "/jobs?q=x"


class Tags(HTMLParser):
    """Collects the names of tags and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        self.found |= names | {"script without src" if tag == "script" and "src" not in names else tag}


def test_pages_have_security_headers(site, window) -> None:
    answer = window("reader").client.get("/jobs")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    tags = Tags()
    tags.feed(answer.text)
    assert not [name for name in tags.found if name in {"style", "script without src"} or name.startswith("on")]


def test_pages_of_another_organisation_are_not_found(window, things) -> None:
    other = window("other-admin").client
    for path in (f"/jobs/{things.done}", f"/tasks/{things.dead_task}", f"/tasks/{things.dead_task}/clear"):
        answer = other.get(path)
        assert answer.status_code == 404
        assert "There is no" in answer.text
        assert "Use the lists or the search" in answer.text
        assert "/v1/" not in answer.text
    nowhere = other.get("/dags/nowhere")
    assert nowhere.status_code == 404
    assert "aaiclick dag deploy FILE" in nowhere.text  # the remedy of PageNotFoundError is shown
    assert "nightly report" not in other.get("/jobs").text + other.get("/search?q=nightly").text + other.get("/").text


def test_revoked_key_ends_its_sessions(site, window) -> None:
    admin = window("admin")
    created_page = admin.post("/admin/keys", name="brief", scope="reader")
    key = re.search(r"aai_\w+_\w{43}", created_page.text).group()
    assert key not in admin.client.get("/admin").text
    browser = window(None)
    assert browser.post("/sign-in", credential=key).status_code == 303
    assert browser.client.get("/jobs").status_code == 200
    key_id = site.sql("SELECT id FROM api_keys WHERE name = 'brief'")[0]["id"]
    assert admin.post("/admin/keys/revoke", id=str(key_id), back="/admin").status_code == 303
    assert browser.client.get("/jobs").status_code == 303


def test_secret_values_are_on_no_page(site, window) -> None:
    admin, canary = window("admin"), "canary-of-a-page"
    assert admin.post("/admin/secrets", name="token", value=canary, host="api.example.com").status_code == 303
    page = admin.client.get("/admin?view=secrets").text
    assert "https://api.example.com" in page
    assert canary not in page + admin.client.get("/admin?view=audit").text
    for refused in ({"name": "Token"}, {"host": "a/b"}, {"value": "abc"}):
        answer = admin.post("/admin/secrets", **({"name": "x", "value": canary} | refused))
        assert answer.status_code == 422
        assert canary not in answer.text
    assert window("reader").client.get("/admin?view=secrets").status_code == 403
    assert window("writer").post("/admin/secrets", name="token", value="stolen").status_code == 403
    assert "token" not in window("other-admin").client.get("/admin?view=secrets").text.partition("<table")[2]
    assert admin.post("/admin/secrets/remove", name="token").status_code == 303
    assert "No secrets" in admin.client.get("/admin?view=secrets").text


def test_unknown_path_returns_problem_json_or_an_html_page(site) -> None:
    assert httpx.get(f"{site.url}/nothing").headers["content-type"] == "application/problem+json"
    answer = httpx.get(f"{site.url}/nothing", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "Page not found." in answer.text


def test_api_refuses_forms(site) -> None:
    answer = httpx.post(
        f"{site.url}/v1/jobs", data={"name": "x"}, headers={"Authorization": f"Bearer {site.keys['admin']}"}
    )
    assert answer.status_code == 415
