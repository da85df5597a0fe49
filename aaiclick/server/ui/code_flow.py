"""Signing in at the identity provider: the authorization code flow of OpenID Connect, with PKCE.

The browser keeps one random secret in a cookie while it is away. State, nonce and the proof of PKCE are derived from
it, so nothing is kept here, and an answer is taken by the browser alone that asked for it. The code is exchanged by the
server; what comes back is checked like every token, and must carry the nonce.
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
from aaiclick.server.oidc import FETCH_TIMEOUT_SECONDS, Endpoints, Provider, subject_of
from aaiclick.settings import Settings

log = logging.getLogger("aaiclick.server")

LONGEST = 4_000


@dataclass(frozen=True, slots=True)
class Errand:
    """One way to the provider and back; `secret` stays in the browser that asked."""

    secret: str
    place: str
    """Where to go then."""

    @classmethod
    def new(cls, place: str) -> Errand:
        return cls(secrets.token_urlsafe(32), place)

    @classmethod
    def read(cls, text: str) -> Errand | None:
        """What a cookie says; None if it is no errand."""
        secret, dot, place = text.partition(".")
        if not dot or len(secret) != 43 or not text.isascii() or len(text) > LONGEST:
            return None
        try:
            return cls(secret, base64.urlsafe_b64decode(place).decode())
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.secret}.{base64.urlsafe_b64encode(self.place.encode()).decode()}"

    @property
    def state(self) -> str:
        return self._derived("state")

    @property
    def nonce(self) -> str:
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        return self._derived("verifier")

    @property
    def challenge(self) -> str:
        return _text(hashlib.sha256(self.verifier.encode()).digest())

    def is_answered_by(self, state: str) -> bool:
        return hmac.compare_digest(self.state.encode(), state.encode())

    def _derived(self, purpose: str) -> str:
        return _text(hmac.new(self.secret.encode(), purpose.encode(), hashlib.sha256).digest())


class CodeFlow:
    """The way to the provider and back."""

    def __init__(self, provider: Provider, client_id: str, client_secret: str | None) -> None:
        self.provider = provider
        self._client_id = client_id
        self._client_secret = client_secret

    @classmethod
    def of(cls, provider: Provider | None, settings: Settings) -> CodeFlow | None:
        if provider is None or settings.oidc_client_id is None:
            return None
        secret = settings.oidc_client_secret
        return cls(provider, settings.oidc_client_id, None if secret is None else secret.get_secret_value())

    @property
    def name(self) -> str:
        """What people know the provider by."""
        return urlsplit(self.provider.issuer).netloc

    async def address(self, errand: Errand, redirect_uri: str) -> str:
        """Where the browser is sent; raises UnreachableError."""
        endpoint = (await self.provider.endpoints()).authorization
        asked = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "scope": "openid",
            "state": errand.state,
            "nonce": errand.nonce,
            "code_challenge": errand.challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    async def subject(self, errand: Errand, code: str, redirect_uri: str) -> str | None:
        """Whom the provider signed in; None if it does not say so. Raises UnreachableError."""
        token = await self._exchange(errand, code, redirect_uri)
        claims = None if token is None else await self.provider.claims(token, self._client_id)
        if claims is None or not self._is_for(errand, claims):
            return None
        return subject_of(claims)

    async def _exchange(self, errand: Errand, code: str, redirect_uri: str) -> str | None:
        endpoints = await self.provider.endpoints()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": errand.verifier,
            "client_id": self._client_id,
        }
        try:
            async with httpx.AsyncClient(timeout=FETCH_TIMEOUT_SECONDS) as client:
                sent = form | self._password(endpoints)
                answer = await client.post(endpoints.token, data=sent, headers=self._basic(endpoints))
        except httpx.HTTPError as error:
            raise UnreachableError(f"The identity provider at {endpoints.token} does not answer.") from error
        if answer.is_server_error:
            raise UnreachableError(f"The identity provider at {endpoints.token} answers {answer.status_code}.")
        token = _field(answer, "id_token")
        if not answer.is_success or not token:
            log.warning("the identity provider gave no token: %s %.60s", answer.status_code, _field(answer, "error"))
            return None
        return token

    def _password(self, endpoints: Endpoints) -> dict[str, str]:
        return {"client_secret": self._client_secret} if self._client_secret and not endpoints.basic else {}

    def _basic(self, endpoints: Endpoints) -> dict[str, str]:
        if not self._client_secret or not endpoints.basic:
            return {}
        pair = f"{quote(self._client_id, safe='')}:{quote(self._client_secret, safe='')}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def _is_for(self, errand: Errand, claims: Mapping[str, Any]) -> bool:
        """Whether a token is the answer to this errand, and for nobody else than us."""
        nonce, party = claims.get("nonce"), claims.get("azp")
        several = isinstance(claims["aud"], list) and len(cast("list[Any]", claims["aud"])) > 1
        ours = party == self._client_id or (party is None and not several)
        return ours and isinstance(nonce, str) and hmac.compare_digest(errand.nonce.encode(), nonce.encode())


def _field(answer: httpx.Response, name: str) -> str:
    try:
        found = answer.json()
    except ValueError:
        return ""
    value = cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None
    return value if isinstance(value, str) else ""


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
