"""TLS contexts of the client."""

import ssl

from aaiclick.client.tls import find_ssl_context


def test_context_of_plain_http_trusts_no_certificate():
    context = find_ssl_context("http://127.0.0.1:8000")
    assert context.get_ca_certs() == []
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_clients_share_the_context_of_the_environment(monkeypatch, tmp_path):
    context = find_ssl_context("https://aaiclick.example.org")
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert find_ssl_context("https://other.example.org") is context
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert find_ssl_context("https://aaiclick.example.org") is not context
