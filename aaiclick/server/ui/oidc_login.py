"""Login at an identity provider: OpenID Connect authorization code flow with PKCE.

A cookie holds one random secret during the login. State, nonce and PKCE verifier are derived from it, so the server
stores nothing and only the browser that started a login can finish it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

import httpx

from aaiclick.errors import UnreachableError
from aaiclick.server.oidc_tokens import FETCH_TIMEOUT_SECONDS, OidcEndpoints, OidcProvider, subject_of
from aaiclick.settings import Settings

log = logging.getLogger("aaiclick.server")

MAX_COOKIE_LENGTH = 4_000


@dataclass(frozen=True, slots=True)
class LoginState:
    """State of one login, stored in a cookie: a random secret and the URL to return to."""

    secret: str
    return_url: str

    @classmethod
    def create(cls, return_url: str) -> LoginState:
        return cls(secrets.token_urlsafe(32), return_url)

    @classmethod
    def parse_cookie(cls, text: str) -> LoginState | None:
        """Parse the login cookie; None if it is malformed."""
        secret, dot, encoded_url = text.partition(".")
        if not dot or len(secret) != 43 or not text.isascii() or len(text) > MAX_COOKIE_LENGTH:
            return None
        try:
            return cls(secret, base64.urlsafe_b64decode(encoded_url).decode())
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.secret}.{base64.urlsafe_b64encode(self.return_url.encode()).decode()}"

    @property
    def state(self) -> str:
        return self._derive_token("state")

    @property
    def nonce(self) -> str:
        return self._derive_token("nonce")

    @property
    def verifier(self) -> str:
        return self._derive_token("verifier")

    @property
    def challenge(self) -> str:
        return _base64url(hashlib.sha256(self.verifier.encode()).digest())

    def matches_state(self, state: str) -> bool:
        return hmac.compare_digest(self.state.encode(), state.encode())

    def _derive_token(self, purpose: str) -> str:
        return _base64url(hmac.new(self.secret.encode(), purpose.encode(), hashlib.sha256).digest())


class AuthorizationCodeFlow:
    """Client of one identity provider."""

    def __init__(self, provider: OidcProvider, client_id: str, client_secret: str | None) -> None:
        self.provider = provider
        self._client_id = client_id
        self._client_secret = client_secret

    @classmethod
    def from_settings(cls, provider: OidcProvider | None, settings: Settings) -> AuthorizationCodeFlow | None:
        if provider is None or settings.oidc_client_id is None:
            return None
        secret = settings.oidc_client_secret
        return cls(provider, settings.oidc_client_id, None if secret is None else secret.get_secret_value())

    @property
    def provider_name(self) -> str:
        """Host of the provider, shown on the sign-in button."""
        return urlsplit(self.provider.issuer).netloc

    async def authorization_url(self, login: LoginState, redirect_uri: str) -> str:
        """Build the URL of the provider's sign-in page; raises UnreachableError."""
        endpoint = (await self.provider.get_endpoints()).authorization
        params = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "scope": "openid",
            "state": login.state,
            "nonce": login.nonce,
            "code_challenge": login.challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(params)}"

    async def fetch_subject(self, login: LoginState, code: str, redirect_uri: str) -> str | None:
        """Exchange the code and return the token's subject; None if the token is invalid. Raises UnreachableError."""
        token = await self._exchange_code(login, code, redirect_uri)
        claims = None if token is None else await self.provider.verify_claims(token, self._client_id)
        if claims is None or not self._is_valid_for(login, claims):
            return None
        return subject_of(claims)

    async def _exchange_code(self, login: LoginState, code: str, redirect_uri: str) -> str | None:
        endpoints = await self.provider.get_endpoints()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": login.verifier,
            "client_id": self._client_id,
        }
        try:
            async with httpx.AsyncClient(timeout=FETCH_TIMEOUT_SECONDS) as client:
                body = form | self._secret_fields(endpoints)
                response = await client.post(endpoints.token, data=body, headers=self._basic_auth_headers(endpoints))
        except httpx.HTTPError as error:
            raise UnreachableError(f"The identity provider at {endpoints.token} is unreachable.") from error
        if response.is_server_error:
            raise UnreachableError(
                f"The identity provider at {endpoints.token} responded with status {response.status_code}."
            )
        token = _json_field(response, "id_token")
        if not response.is_success or not token:
            log.warning(
                "the identity provider returned no id_token: status %s, error %.60s",
                response.status_code,
                _json_field(response, "error"),
            )
            return None
        return token

    def _secret_fields(self, endpoints: OidcEndpoints) -> dict[str, str]:
        return {"client_secret": self._client_secret} if self._client_secret and not endpoints.basic else {}

    def _basic_auth_headers(self, endpoints: OidcEndpoints) -> dict[str, str]:
        if not self._client_secret or not endpoints.basic:
            return {}
        pair = f"{quote(self._client_id, safe='')}:{quote(self._client_secret, safe='')}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def _is_valid_for(self, login: LoginState, claims: Mapping[str, object]) -> bool:
        """Whether a token carries the nonce of this login and was issued to this client."""
        nonce, authorized_party = claims.get("nonce"), claims.get("azp")
        has_several_audiences = isinstance(claims["aud"], list) and len(cast("list[Any]", claims["aud"])) > 1
        is_our_token = authorized_party == self._client_id or (authorized_party is None and not has_several_audiences)
        return is_our_token and isinstance(nonce, str) and hmac.compare_digest(login.nonce.encode(), nonce.encode())


def _json_field(response: httpx.Response, name: str) -> str:
    try:
        body = response.json()
    except ValueError:
        return ""
    value = cast("dict[str, Any]", body).get(name) if isinstance(body, dict) else None
    return value if isinstance(value, str) else ""


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
