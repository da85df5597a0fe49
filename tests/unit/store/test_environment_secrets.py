"""The operator's map of secrets: what it may name, and what it never reads."""

from __future__ import annotations

import json
import os

import pytest
from pydantic import ValidationError

from aaiclick.errors import SecretError
from aaiclick.server_addresses import MappedSecret, origin_of, parse_secret_host
from aaiclick.settings import Settings
from aaiclick.store.tenancy.environment_secrets import MAX_BYTES, load_mapped_secrets, read_mapped_secret


def settings(home, entries) -> Settings:
    return Settings(AAICLICK_HOME=home, AAICLICK_SECRETS_MAP=json.dumps(entries))


def test_variables_and_files_are_read_for_their_organisation(tmp_path, monkeypatch):
    monkeypatch.setenv("ACME_TOKEN", "sesame")
    (tmp_path / "token").write_text("open\n")
    chosen = settings(
        tmp_path / "home",
        {
            "acme/token": "env:ACME_TOKEN",
            "acme/other": {"from": f"file:{tmp_path}/token", "host": "API.example.com:443"},
            "beta/token": "env:ABSENT",
        },
    )
    acme = load_mapped_secrets("acme", chosen)
    assert [read_mapped_secret(acme[name], chosen) for name in ("token", "other")] == ["sesame", "open"]
    assert acme["other"].host == "https://api.example.com"
    with pytest.raises(SecretError, match="cannot be read") as caught:
        read_mapped_secret(load_mapped_secrets("beta", chosen)["token"], chosen)
    assert "ABSENT" not in str(caught.value)
    assert load_mapped_secrets("gamma", chosen) == {}


@pytest.mark.parametrize(
    "reference",
    [
        "env:AAICLICK_DATABASE_URL", "env:aaiclick_api_key", "env:POSTGRES_PASSWORD", "env:PGPASSWORD",
        "env:PGPASSFILE", "env:A B", "env:", "file:relative", "file:/proc/self/environ", "file:/dev/stdin",
        "ACME_TOKEN", 7, None,
        {"from": "env:AAICLICK_SECRETS_KEY"}, {"host": "a.example"}, {"from": "env:X", "host": "a/b"},
        {"from": "env:X", "port": 1},
    ],
)  # fmt: skip
def test_sources_of_installation_passwords_are_refused(tmp_path, reference):
    with pytest.raises(ValidationError):
        settings(tmp_path, {"acme/token": reference})


@pytest.mark.parametrize("key", ["token", "/token", "acme/", "acme/Token", "acme/../x"])
def test_an_entry_names_an_organisation_and_a_secret(tmp_path, key):
    with pytest.raises(ValidationError, match="ORG/NAME"):
        settings(tmp_path, {key: "env:X"})


def test_file_below_the_home_is_refused_behind_a_symlink(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "secrets.json").write_text("password")
    for path in (home / "secrets.json", tmp_path / "x" / ".." / "home" / "secrets.json"):
        with pytest.raises(ValidationError, match="below AAICLICK_HOME"):
            settings(home, {"acme/token": f"file:{path}"})
    link = tmp_path / "link"
    link.symlink_to(home / "secrets.json")
    with pytest.raises(ValidationError, match="below AAICLICK_HOME"):
        settings(home, {"acme/token": f"file:{link}"})
    link.unlink()
    chosen = settings(home, {"acme/token": f"file:{link}"})
    link.symlink_to(home / "secrets.json")  # since the settings were read
    with pytest.raises(SecretError):
        read_mapped_secret(chosen.secrets_map[0], chosen)


def test_only_regular_files_are_read(tmp_path):
    environ = tmp_path / "environ"
    environ.symlink_to("/proc/self/environ")
    large = tmp_path / "large"
    large.write_bytes(b"x" * (MAX_BYTES + 1))
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe-of-nobody")
    chosen = settings(tmp_path / "home", {})
    for name in ("environ", "large", "binary", "empty", "absent", "."):
        with pytest.raises(SecretError):
            read_mapped_secret(MappedSecret("acme", "token", "file", f"{tmp_path}/{name}"), chosen)


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("api.example.com", "https://api.example.com"),
        ("API.Example.com:443", "https://api.example.com"),
        ("api.example.com:8443", "https://api.example.com:8443"),
        ("http://10.0.0.7:8080", "http://10.0.0.7:8080"),
        ("https://[2001:DB8::1]/", "https://[2001:db8::1]"),
    ],
)
def test_host_is_normalised_to_an_origin(text, origin):
    assert parse_secret_host(text) == origin


@pytest.mark.parametrize(
    "text", ["", "a b/c", "https://a@b", "a.example/path", "a.example?x", "ftp://a", "https://", "a:99999", "bücher.de"]
)
def test_invalid_host_is_refused(text):
    with pytest.raises(ValueError, match="write a host"):
        parse_secret_host(text)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://api.example.com/x?y#z", "https://api.example.com"),
        ("https://api.example.com:443", "https://api.example.com"),
        ("http://api.example.com:443", "http://api.example.com:443"),
        ("https://api.example.com@evil.example/", None),
        ("https://user:pw@api.example.com/", None),
        ("https://api.example.com.evil.example", "https://api.example.com.evil.example"),
        ("https://api.example.com.", "https://api.example.com."),
        ("file:///etc/passwd", None),
        ("//api.example.com", None),
        ("https://a:b", None),
    ],
)
def test_origin_of_a_url(url, origin):
    assert origin_of(url) == origin
