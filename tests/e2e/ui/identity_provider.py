"""OpenID Connect provider for tests: discovery, sign-in page, codes with PKCE, tokens and keys.

It checks requests as strictly as real providers. `bend` tampers with its tokens.
"""

from __future__ import annotations

import base64
import hashlib
import html
import http.server
import json
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

CLIENT, SECRET = "aaiclick ui", "s3cret:/?"


@dataclass
class Bend:
    """Changes to the issued tokens."""

    claims: dict[str, Any] = field(default_factory=dict)
    algorithm: str = "RS256"
    key: Any = None


class Provider:
    """HTTP server of the provider, in a thread."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.codes: dict[str, dict[str, str]] = {}
        self.bend = Bend()
        self.refused: list[str] = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.issuer = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def environment(self) -> dict[str, str]:
        return {
            "AAICLICK_OIDC_ISSUER": self.issuer,
            "AAICLICK_OIDC_AUDIENCE": "aaiclick-api",
            "AAICLICK_OIDC_CLIENT_ID": CLIENT,
            "AAICLICK_OIDC_CLIENT_SECRET": SECRET,
        }

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize?tenant=t",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        }

    def keys(self) -> dict[str, Any]:
        public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [public | {"kid": "rsa", "alg": "RS256", "use": "sig"}]}

    def authorize(self, params: dict[str, str]) -> tuple[int, dict[str, str], str]:
        """Return a page to choose the user, then the redirect with a code."""
        required = {"response_type": "code", "client_id": CLIENT, "code_challenge_method": "S256", "tenant": "t"}
        if (
            any(params.get(name) != value for name, value in required.items())
            or "openid" not in params["scope"].split()
        ):
            return 400, {}, "invalid authorization request"
        who = params.pop("who", None)
        if who is None:
            fields = "".join(f'<input type="hidden" name="{n}" value="{html.escape(v)}">' for n, v in params.items())
            names = "".join(f'<button name="who" value="{name}">{name}</button>' for name in ("ada", "stranger"))
            head = '<!doctype html><html lang="en"><title>Provider</title><link rel="icon" href="data:,">'
            return 200, {}, f'{head}<h1>Who are you?</h1><form action="/authorize">{fields}{names}</form>'
        code = secrets.token_urlsafe(16)
        self.codes[code] = params | {"who": who}
        back = urlencode({"code": code, "state": params["state"], "iss": self.issuer})
        return 302, {"Location": f"{params['redirect_uri']}?{back}"}, ""

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Exchange a code for a token once, after checking the PKCE verifier and the client's password."""
        request_params = self.codes.pop(form.get("code", ""), None)
        proof = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(proof).decode().rstrip("=")
        pair = base64.b64encode(b"aaiclick%20ui:s3cret%3A%2F%3F").decode()
        is_valid = (
            request_params is not None
            and form.get("grant_type") == "authorization_code"
            and form.get("redirect_uri") == request_params["redirect_uri"]
            and challenge == request_params["code_challenge"]
            and authorization == f"Basic {pair}"
        )
        if request_params is None or not is_valid:
            self.refused.append(form.get("code", ""))
            return 400, {"error": "invalid_grant"}
        now = time.time()
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": request_params["who"], "iat": now, "exp": now + 300}
        claims |= {"nonce": request_params["nonce"]} | self.bend.claims
        key = None if self.bend.algorithm == "none" else self.bend.key or self.key
        encoded_token = jwt.encode(
            {name: value for name, value in claims.items() if value is not None},
            key, self.bend.algorithm, headers={"kid": "rsa"},
        )  # fmt: skip
        return 200, {"id_token": encoded_token, "access_token": "opaque", "token_type": "Bearer"}

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                if parts.path == "/authorize":
                    status, headers, text = provider.authorize(dict(parse_qsl(parts.query)))
                    self.answer(status, {"Content-Type": "text/html", **headers}, text)
                elif parts.path == "/.well-known/openid-configuration":
                    self.answer(200, {}, json.dumps(provider.discovery()))
                else:
                    self.answer(200 if parts.path == "/keys" else 404, {}, json.dumps(provider.keys()))

            def do_POST(self) -> None:
                form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
                status, body = provider.token(form, self.headers.get("Authorization", ""))
                self.answer(status, {"Content-Type": "application/json"}, json.dumps(body))

            def answer(self, status: int, headers: dict[str, str], text: str) -> None:
                body = text.encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        return Handler
