"""Tokens of an identity provider that runs over HTTP with real signatures."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import http.server
import json
import threading
import time
from collections.abc import Iterator

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.tenancy import users
from tests.integration.server.conftest import environment_for, start_server, with_connection

AUDIENCE = "aaiclick-test"


class Provider:
    """Identity provider that serves its public keys and counts requests."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.curve = ec.generate_private_key(ec.SECP256R1())
        self.asked = 0
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                is_discovery = "openid-configuration" in self.path
                body = json.dumps(provider.discovery() if is_discovery else {"keys": provider.public()}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def discovery(self) -> dict[str, str]:
        """Discovery document with an issuer that ends with a slash."""
        places = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        return {"issuer": f"{self.issuer}/"} | {endpoint: f"{self.issuer}/{endpoint}" for endpoint in places}

    def public(self) -> list[dict]:
        one = json.loads(RSAAlgorithm.to_jwk(self.key.public_key())) | {"kid": "rsa", "alg": "RS256", "use": "sig"}
        two = json.loads(ECAlgorithm.to_jwk(self.curve.public_key())) | {"kid": "curve", "alg": "ES256", "use": "sig"}
        return [one, two]

    def token(self, *, key=None, algorithm="RS256", kid="rsa", **claims) -> str:
        now = time.time()
        base = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 300}
        content = {name: value for name, value in (base | claims).items() if value is not None}
        return jwt.encode(content, key or self.key, algorithm, headers={"kid": kid})

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    test_provider = Provider()
    yield test_provider
    test_provider.close()


@pytest.fixture(scope="module")
def oidc(provider, aaiclick_stack, _aaiclick_template, tmp_path_factory):
    database = aaiclick_stack.run(aaiclick_stack.take_database())
    endpoint = aaiclick_stack.connection.postgres_endpoint().with_database(database)
    directory = tmp_path_factory.mktemp("oidc")
    environment = environment_for(endpoint, aaiclick_stack.connection.clickhouse_endpoint().url, directory) | {
        "AAICLICK_OIDC_ISSUER": provider.issuer,
        "AAICLICK_OIDC_AUDIENCE": AUDIENCE,
    }

    async def people(connection):
        await users.create_user(connection, DEFAULT_ORG_ID, external_id="ada", role="writer")
        gone = await users.create_user(connection, DEFAULT_ORG_ID, external_id="gone", role="admin")
        await users.update_user(connection, DEFAULT_ORG_ID, gone.id, email=None, role="admin", disabled=True)

    asyncio.run(with_connection(endpoint, people))
    server = start_server(environment, directory / "server.log")
    yield server
    assert server.stop() == 0
    aaiclick_stack.run(aaiclick_stack.return_database(database))


def ask(server, token: str, path: str = "/v1/whoami") -> httpx.Response:
    return httpx.get(server.url + path, headers={"Authorization": f"Bearer {token}"}, timeout=60)


def test_token_authenticates_its_subject(oidc, provider) -> None:
    answer = ask(oidc, provider.token())
    assert answer.status_code == 200, answer.text
    assert answer.json()["actor"].startswith("user ")
    assert answer.json()["scopes"] == ["writer"]
    assert ask(oidc, provider.token(), "/v1/keys").status_code == 403
    assert ask(oidc, provider.token(key=provider.curve, algorithm="ES256", kid="curve")).status_code == 200
    assert ask(oidc, provider.token(aud=["other", AUDIENCE])).status_code == 200
    assert ask(oidc, provider.token(iss=f"{provider.issuer}/")).status_code == 200


def forged(provider: Provider) -> dict[str, str]:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    none = jwt.encode({"iss": provider.issuer, "aud": AUDIENCE, "sub": "ada"}, None, "none", headers={"kid": "rsa"})
    whole = provider.token()
    head, _, signature = whole.split(".")
    return {
        "expired": provider.token(exp=time.time() - 3600),
        "without an end": provider.token(exp=None),
        "not yet": provider.token(nbf=time.time() + 3600),
        "another audience": provider.token(aud="somebody-else"),
        "no audience": provider.token(aud=None),
        "another issuer": provider.token(iss="https://evil.example.org"),
        "no issuer": provider.token(iss=None),
        "nobody": provider.token(sub="nobody"),
        "no subject": provider.token(sub=None),
        "empty subject": provider.token(sub=""),
        "NUL in the subject": provider.token(sub="ada\0"),
        "half a character in the subject": provider.token(sub="\ud800"),
        "a disabled user": provider.token(sub="gone"),
        "another key": provider.token(key=other),
        "an unknown key id": provider.token(kid="made-up"),
        "algorithm none": none,
        "another algorithm": provider.token(algorithm="RS512"),
        "the public key as a secret": hmac_with_public_key(provider),
        "a changed body": ".".join([head, provider.token(sub="gone").split(".")[1], signature]),
        "no signature": whole.rpartition(".")[0] + ".",
    }


def hmac_with_public_key(provider: Provider) -> str:
    """Algorithm confusion: the public key is used as an HMAC secret."""

    def encode(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    claims = {"iss": provider.issuer, "aud": AUDIENCE, "sub": "ada", "iat": time.time(), "exp": time.time() + 300}
    head = encode(json.dumps({"alg": "HS256", "kid": "rsa"}).encode()) + "." + encode(json.dumps(claims).encode())
    secret = json.dumps(provider.public()[0]).encode()
    return head + "." + encode(hmac.new(secret, head.encode(), hashlib.sha256).digest())


def test_forged_token_is_refused(oidc, provider) -> None:
    for name, token in forged(provider).items():
        assert ask(oidc, token).status_code == 401, name


def test_invented_key_ids_do_not_reach_the_provider(oidc, provider) -> None:
    ask(oidc, provider.token())
    before = provider.asked
    for number in range(20):
        assert ask(oidc, provider.token(kid=f"made-up-{number}")).status_code == 401
    assert provider.asked <= before + 1


def test_log_contains_no_token(oidc, provider) -> None:
    token = provider.token()
    ask(oidc, token)
    assert token.rpartition(".")[2] not in oidc.log.read_text()
