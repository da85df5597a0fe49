"""HTTPS by --tls-cert and --tls-key."""

from __future__ import annotations

import datetime as dt
import re
import ssl
import subprocess
import time

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.fork_server import FORK_SERVER
from tests.integration.server.conftest import environment_for


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for localhost and its key, as PEM files."""
    directory = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (directory / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key_bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "key.pem").write_bytes(key_bytes)
    return directory


@pytest.fixture
def environment(aaiclick_postgres, aaiclick_stack, tmp_path):
    return environment_for(aaiclick_postgres, aaiclick_stack.connection.clickhouse_endpoint().url, tmp_path)


def test_server_with_a_certificate_serves_https_only(environment, certificate, tmp_path) -> None:
    files = ["--tls-cert", str(certificate / "cert.pem"), "--tls-key", str(certificate / "key.pem")]
    log = tmp_path / "server.log"
    with log.open("wb") as stream:
        process = FORK_SERVER.start(["server", "start", "--port", "0", *files], environment, None, stream, stream)
    try:
        while not (match := re.search(r"listening on https://127.0.0.1:(\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.02)
        trusted = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
        with httpx.Client(base_url=f"https://localhost:{match[1]}", verify=trusted, timeout=30) as client:
            assert client.get("/health/live").status_code == 200
            key = re.search(r"aai_\w+", log.read_text()).group()
            csrf = client.get("/sign-in").text.partition('name="csrf" value="')[2].partition('"')[0]
            signed_in = client.post("/sign-in", data={"csrf": csrf, "credential": key})
            assert signed_in.status_code == 303
            cookies = [cookie.lower() for cookie in signed_in.headers.get_list("set-cookie")]
            assert cookies
            assert all("secure" in cookie for cookie in cookies)
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://localhost:{match[1]}/health/live", timeout=5)
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tls-cert", "cert.pem"], "belong together"),
        (["--tls-cert", "cert.pem", "--tls-key", "cert.pem"], "The server cannot use"),
    ],
)
def test_unusable_certificate_is_refused(environment, certificate, options, message) -> None:
    paths = [str(certificate / word) if word.endswith(".pem") else word for word in options]
    result: subprocess.CompletedProcess[str] = FORK_SERVER.run(["server", "start", "--port", "0", *paths], environment)
    assert (result.returncode, message in result.stderr) == (2, True), result.stderr
