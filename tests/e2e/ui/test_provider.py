"""Signing in at an identity provider: a real one over HTTP, a real browser, and what tries to get in without."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from playwright.sync_api import expect

from tests.e2e.ui.provider import CLIENT, Bend


@pytest.fixture(autouse=True)
def _straight(site):
    yield
    site.provider.bend = Bend()


def leave(window, place: str = "/jobs") -> str:
    """The address of the provider that a browser is sent to."""
    answer = window.client.get("/sign-in/provider", params={"next": place})
    assert answer.status_code == 303
    return answer.headers["location"]


def sign(address: str, who: str = "ada") -> str:
    """Sign in at the provider; returns the address that it sends the browser back to."""
    return httpx.get(f"{address}&who={who}").headers["location"]


def changed(address: str, **values: str | None) -> str:
    fields = {name: found[0] for name, found in parse_qs(urlsplit(address).query).items()} | values
    return "/sign-in/callback?" + urlencode({name: value for name, value in fields.items() if value is not None})


def is_out(window) -> bool:
    return window.client.get("/jobs").headers.get("location", "").startswith("/sign-in")


def test_who_signs_in_at_the_provider_comes_back_to_the_page_that_was_asked_for_and_signs_out(site, visit) -> None:
    visitor = visit(None)
    page = visitor.go("/jobs?status=RUNNING")
    page.get_by_role("link", name=f"Sign in with {urlsplit(site.provider.issuer).netloc}").click()
    expect(page.get_by_role("heading", name="Who are you?")).to_be_visible()
    page.get_by_role("button", name="ada").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    expect(page).to_have_url(f"{site.url}/jobs?status=RUNNING")
    expect(page.locator(".who")).to_contain_text("user ")
    expect(page.get_by_role("link", name="Admin")).to_have_count(0)
    cookies = {cookie["name"]: cookie for cookie in visitor.context.cookies()}
    assert (cookies["aaiclick_session"]["httpOnly"], cookies["aaiclick_session"]["sameSite"]) == (True, "Lax")
    assert "aaiclick_errand" not in cookies
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in to aaiclick")).to_be_visible()
    page.goto(f"{site.url}/jobs")
    expect(page).to_have_url(re.compile("/sign-in"))


def test_a_stranger_is_told_what_an_admin_needs_to_know(site, visit) -> None:
    visitor = visit(None)
    page = visitor.go("/sign-in/provider")
    page.get_by_role("button", name="stranger").click()
    expect(page.get_by_role("heading")).to_have_text("You are 'stranger' to the identity provider, and nobody here.")
    expect(page.get_by_text("Ask an admin to add you with this subject")).to_be_visible()
    page.get_by_role("link", name="Sign in again").click()
    expect(page.get_by_role("heading", name="Sign in to aaiclick")).to_be_visible()
    visitor.wrong[:] = [said for said in visitor.wrong if "401" not in said]


def test_what_is_sent_to_the_provider_tells_nothing_that_opens_anything(site, window) -> None:
    browser = window(None)
    asked = {name: found[0] for name, found in parse_qs(urlsplit(leave(browser)).query).items()}
    assert asked["redirect_uri"] == f"{site.url}/sign-in/callback"
    secret = browser.client.cookies["aaiclick_errand"].partition(".")[0]
    assert secret not in str(asked)
    assert len({asked["state"], asked["nonce"], asked["code_challenge"], secret}) == 4
    assert leave(window(None)) != leave(window(None))


@pytest.mark.parametrize("state", ["", "x", "x" * 43, None])
def test_an_answer_with_another_state_is_refused_before_the_provider_is_asked(site, window, state) -> None:
    browser = window(None)
    back = sign(leave(browser))
    answer = browser.client.get(changed(back, state=state))
    assert answer.status_code == 401
    assert "not to a question of this browser" in answer.text
    assert parse_qs(urlsplit(back).query)["code"][0] in site.provider.codes
    assert is_out(browser)


def test_an_answer_is_good_for_the_browser_that_asked_and_once(site, window) -> None:
    victim, thief = window(None), window(None)
    back = sign(leave(victim))
    leave(thief)
    assert thief.client.get(changed(back)).status_code == 401  # a link to somebody else's account
    own = parse_qs(urlsplit(leave(thief)).query)["state"][0]
    assert thief.client.get(changed(back, state=own)).status_code == 401  # a stolen code, without its proof
    assert is_out(thief)
    back = sign(leave(victim))
    errand = victim.client.cookies["aaiclick_errand"]
    assert victim.client.get(changed(back)).status_code == 303
    assert not is_out(victim)
    for again in (window(None), thief):
        again.client.cookies.set("aaiclick_errand", errand)
        assert again.client.get(changed(back)).status_code == 401
        assert is_out(again)


def bends(site) -> dict[str, Bend]:
    return {
        "another nonce": Bend({"nonce": "n" * 43}),
        "no nonce": Bend({"nonce": None}),
        "a nonce that is no text": Bend({"nonce": 7}),
        "algorithm none": Bend(algorithm="none"),
        "the client's name as a secret": Bend(algorithm="HS256", key="x" * 64),
        "another key": Bend(key=rsa.generate_private_key(public_exponent=65537, key_size=2048)),
        "another issuer": Bend({"iss": "https://evil.example"}),
        "the audience of the API": Bend({"aud": "aaiclick-api"}),
        "made for another party": Bend({"aud": [CLIENT, "other"], "azp": "other"}),
        "made for several": Bend({"aud": [CLIENT, "other"]}),
        "expired": Bend({"exp": 1_000_000_000}),
        "an empty subject": Bend({"sub": ""}),
        "a disabled user": Bend({"sub": "gone"}),
    }


def test_no_bent_token_signs_anybody_in(site, window) -> None:
    browser = window(None)
    for name, bend in bends(site).items():
        site.provider.bend = bend
        answer = browser.client.get(changed(sign(leave(browser))))
        assert answer.status_code == 401, name
        assert is_out(browser), name
    site.provider.bend = Bend({"aud": [CLIENT, "other"], "azp": CLIENT})
    assert browser.client.get(changed(sign(leave(browser)))).status_code == 303


@pytest.mark.parametrize(
    "place", ["//evil.example", "/\\evil.example", "https://evil.example", "/\t/evil.example", "javascript:boom()"]
)
def test_next_leads_nowhere_but_here(site, window, place: str) -> None:
    browser = window(None)
    answer = browser.client.get(changed(sign(leave(browser, place))))
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "evil.example" not in browser.client.get("/sign-in", params={"next": place}).text
    assert window("admin").client.get("/sign-in/provider", params={"next": place}).headers["location"] == "/"


def test_a_refusal_of_the_provider_and_the_answer_of_another_are_told_with_a_remedy(site, window) -> None:
    browser = window(None)
    for values, words in (
        ({"code": None, "error": "access_denied"}, "did not let you in"),
        ({"code": None, "error": "<script>boom()</script>"}, "reports an error"),
        ({"iss": "https://evil.example"}, "Another identity provider answered"),
        ({"code": "made-up"}, "answer does not hold"),
    ):
        answer = browser.client.get(changed(sign(leave(browser)), **values))
        assert (answer.status_code, words in answer.text) == (401, True), answer.text
        assert "Sign in again" in answer.text
        assert "<script>boom" not in answer.text
    assert is_out(browser)


def test_no_code_and_no_secret_is_in_the_log(site, window) -> None:
    browser = window(None)
    back = sign(leave(browser))
    browser.client.get(changed(back))
    said = site.server.log.read_text()
    assert parse_qs(urlsplit(back).query)["code"][0] not in said
    assert "s3cret" not in said
