"""Sign-in at an identity provider over HTTP, with a browser, and attacks on it."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from playwright.sync_api import expect

from tests.e2e.ui.identity_provider import CLIENT, Bend


@pytest.fixture(autouse=True)
def _straight(site):
    yield
    site.provider.bend = Bend()


def start_login(window, return_url: str = "/jobs") -> str:
    """Start a login; return the provider's URL."""
    answer = window.client.get("/sign-in/provider", params={"next": return_url})
    assert answer.status_code == 303
    return answer.headers["location"]


def sign_in_at_provider(address: str, who: str = "ada") -> str:
    """Sign in at the provider; return the callback URL."""
    return httpx.get(f"{address}&who={who}").headers["location"]


def callback_path(address: str, **values: str | None) -> str:
    fields = {name: values_of_field[0] for name, values_of_field in parse_qs(urlsplit(address).query).items()} | values
    return "/sign-in/callback?" + urlencode({name: value for name, value in fields.items() if value is not None})


def is_signed_out(window) -> bool:
    return window.client.get("/jobs").headers.get("location", "").startswith("/sign-in")


def test_sign_in_at_the_provider_returns_to_the_requested_page(site, visit) -> None:
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
    assert "aaiclick_login" not in cookies
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in to aaiclick")).to_be_visible()
    page.goto(f"{site.url}/jobs")
    expect(page).to_have_url(re.compile("/sign-in"))


def test_unknown_subject_gets_a_remedy(site, visit) -> None:
    visitor = visit(None)
    page = visitor.page
    page.goto(site.url + "/sign-in/provider")
    page.get_by_role("button", name="stranger").click()
    expect(page.get_by_role("heading")).to_have_text("No user with the subject 'stranger' exists.")
    expect(page.get_by_text("Ask an admin to add this subject")).to_be_visible()
    page.get_by_role("link", name="Sign in again").click()
    expect(page.get_by_role("heading", name="Sign in to aaiclick")).to_be_visible()
    visitor.wrong[:] = [message for message in visitor.wrong if "401" not in message]


def test_authorization_request_reveals_no_secret(site, window) -> None:
    browser = window(None)
    params = {name: values[0] for name, values in parse_qs(urlsplit(start_login(browser)).query).items()}
    assert params["redirect_uri"] == f"{site.url}/sign-in/callback"
    secret = browser.client.cookies["aaiclick_login"].partition(".")[0]
    assert secret not in str(params)
    assert len({params["state"], params["nonce"], params["code_challenge"], secret}) == 4
    assert start_login(window(None)) != start_login(window(None))


@pytest.mark.parametrize("state", ["", "x", "x" * 43, None])
def test_wrong_state_is_refused_before_the_code_is_exchanged(site, window, state) -> None:
    browser = window(None)
    back = sign_in_at_provider(start_login(browser))
    answer = browser.client.get(callback_path(back, state=state))
    assert answer.status_code == 401
    assert "not started in this browser" in answer.text
    assert parse_qs(urlsplit(back).query)["code"][0] in site.provider.codes
    assert is_signed_out(browser)


def test_callback_is_valid_once_for_the_browser_that_started_it(site, window) -> None:
    victim, thief = window(None), window(None)
    back = sign_in_at_provider(start_login(victim))
    start_login(thief)
    assert thief.client.get(callback_path(back)).status_code == 401  # login CSRF: a link with another browser's code
    own = parse_qs(urlsplit(start_login(thief)).query)["state"][0]
    assert (
        thief.client.get(callback_path(back, state=own)).status_code == 401
    )  # a stolen code without its PKCE verifier
    assert is_signed_out(thief)
    back = sign_in_at_provider(start_login(victim))
    login_cookie = victim.client.cookies["aaiclick_login"]
    assert victim.client.get(callback_path(back)).status_code == 303
    assert not is_signed_out(victim)
    for again in (window(None), thief):
        again.client.cookies.set("aaiclick_login", login_cookie)
        assert again.client.get(callback_path(back)).status_code == 401
        assert is_signed_out(again)


def tampered_tokens(site) -> dict[str, Bend]:
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


def test_tampered_tokens_are_refused(site, window) -> None:
    browser = window(None)
    for name, bend in tampered_tokens(site).items():
        site.provider.bend = bend
        answer = browser.client.get(callback_path(sign_in_at_provider(start_login(browser))))
        assert answer.status_code == 401, name
        assert is_signed_out(browser), name
    site.provider.bend = Bend({"aud": [CLIENT, "other"], "azp": CLIENT})
    assert browser.client.get(callback_path(sign_in_at_provider(start_login(browser)))).status_code == 303


@pytest.mark.parametrize(
    "return_url", ["//evil.example", "/\\evil.example", "https://evil.example", "/\t/evil.example", "javascript:boom()"]
)
def test_next_is_restricted_to_local_urls(site, window, return_url: str) -> None:
    browser = window(None)
    answer = browser.client.get(callback_path(sign_in_at_provider(start_login(browser, return_url))))
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "evil.example" not in browser.client.get("/sign-in", params={"next": return_url}).text
    assert window("admin").client.get("/sign-in/provider", params={"next": return_url}).headers["location"] == "/"


def test_provider_errors_are_shown_with_a_remedy(site, window) -> None:
    browser = window(None)
    for values, message in (
        ({"code": None, "error": "access_denied"}, "denied access"),
        ({"code": None, "error": "<script>boom()</script>"}, "returned an error"),
        ({"iss": "https://evil.example"}, "unexpected identity provider"),
        ({"code": "made-up"}, "returned an invalid token"),
    ):
        answer = browser.client.get(callback_path(sign_in_at_provider(start_login(browser)), **values))
        assert (answer.status_code, message in answer.text) == (401, True), answer.text
        assert "Sign in again" in answer.text
        assert "<script>boom" not in answer.text
    assert is_signed_out(browser)


def test_codes_and_secrets_are_not_logged(site, window) -> None:
    browser = window(None)
    back = sign_in_at_provider(start_login(browser))
    browser.client.get(callback_path(back))
    log_text = site.server.log.read_text()
    assert parse_qs(urlsplit(back).query)["code"][0] not in log_text
    assert "s3cret" not in log_text
