"""S3 addresses, credentials and signatures."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from aaiclick.data import S3Access
from aaiclick.data.errors import DataError
from aaiclick.data.io.s3_client import S3Object, signed_headers
from aaiclick.data.io.ssrf import without_query
from aaiclick.errors import AaiclickError

KEYS = {"access_key": "AKIAIOSFODNN7EXAMPLE", "secret_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}


@pytest.mark.parametrize(
    ("text", "access", "url"),
    [
        ("s3://pile/a/b.csv", {}, "https://pile.s3.us-east-1.amazonaws.com/a/b.csv"),
        ("s3://pile/a b+?#.csv", {"region": "eu-west-1"}, "https://pile.s3.eu-west-1.amazonaws.com/a%20b%2B%3F%23.csv"),
        ("s3://a.b.c/x.csv", {}, "https://s3.us-east-1.amazonaws.com/a.b.c/x.csv"),
        ("s3://pile/x.csv", {"region": "cn-north-1"}, "https://pile.s3.cn-north-1.amazonaws.com.cn/x.csv"),
        ("s3://pile/ü//../x.csv", {"endpoint": "http://[::1]:9/"}, "http://[::1]:9/pile/%C3%BC//../x.csv"),
    ],
)
def test_urls_of_s3_addresses(text, access, url):
    assert S3Object.parse(text).url(S3Access(**access)) == url


@pytest.mark.parametrize(
    "text",
    ["s3://", "s3://b", "s3://pile", "s3://pile/", "s3:///x.csv", "s3://evil.com#/x.csv", "s3://user@host/x", "s3://a..b/x",
     "s3://../x", "s3://127.0.0.1:80/x", "s3://pi le/x", "s3://pile/" + "x" * 1025],
)  # fmt: skip
def test_invalid_s3_addresses_are_rejected(text):
    with pytest.raises(DataError):
        S3Object.parse(text)


@pytest.mark.parametrize(
    "wrong",
    [{"access_key": "only"}, {"secret_key": "only"}, {"region": "evil.com/"}, {"region": "EU"},
     {"endpoint": "file:///etc/passwd"}, {"endpoint": "http://user:secret@host"}, {**KEYS, "session_token": "ü"}],
)  # fmt: skip
def test_invalid_s3_access_is_rejected(wrong):
    with pytest.raises(AaiclickError) as caught:
        S3Access(**wrong)
    assert "secret" not in str(caught.value)


def test_repr_hides_secrets():
    shown = repr(S3Access(**KEYS, session_token="very-secret"))
    assert KEYS["secret_key"] not in shown
    assert "very-secret" not in shown
    assert without_query("https://me:pw@host/x.csv?X-Amz-Signature=1#a") == "https://host/x.csv"


def test_access_from_aws_environment_variables():
    environ = {
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c",
        "AWS_DEFAULT_REGION": "eu-west-1",        "AWS_ENDPOINT_URL": "http://one", "AWS_ENDPOINT_URL_S3": "http://two",
    }  # fmt: skip
    assert S3Access.from_environment(environ) == S3Access("a", "b", "c", "eu-west-1", "http://two")
    assert S3Access.from_environment({**environ, "AWS_REGION": "us-west-2"}).region == "us-west-2"
    assert S3Access.from_environment({}) == S3Access()


def test_requests_without_keys_are_not_signed():
    assert signed_headers(S3Access(), "GET", "https://h/x", {}, b"", datetime.now(UTC)) == {"host": "h"}


@pytest.mark.parametrize(
    ("query", "signature"),
    [
        ({"lifecycle": ""}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ({"max-keys": "2", "prefix": "J"}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_signatures_match_aws_documentation(query, signature):
    now = datetime(2013, 5, 24, tzinfo=UTC)
    headers = signed_headers(S3Access(**KEYS), "GET", "https://examplebucket.s3.amazonaws.com/", query, b"", now)
    assert headers["authorization"].endswith(f"Signature={signature}")
