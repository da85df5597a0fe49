"""Signing in, what everybody gets around a page, and what is refused."""

from __future__ import annotations

import re

import httpx
from playwright.sync_api import expect


def test_who_signs_in_with_a_key_sees_the_overview_and_signs_out(visit) -> None:
    visitor = visit("admin")
    page = visitor.page
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    cookies = {cookie["name"]: cookie for cookie in visitor.context.cookies()}
    assert cookies["aaiclick_session"]["httpOnly"]
    assert cookies["aaiclick_session"]["sameSite"] == "Lax"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in to aaiclick")).to_be_visible()
    page.goto(visitor.url + "/jobs")
    expect(page).to_have_url(re.compile("/sign-in"))


def test_every_page_opens_for_an_admin(visit) -> None:
    visitor = visit("admin")
    for path in ("/", "/?span=day", "/jobs", "/jobs?status=FAILED", "/queues", "/dead-letters", "/workers", "/objects",
                 "/admin", "/admin?view=users", "/admin?view=orgs", "/admin?view=audit", "/search?q=x"):  # fmt: skip
        answer = visitor.page.goto(visitor.url + path)
        assert answer.status == 200, path
        assert "default-src 'self'" in answer.headers["content-security-policy"]
