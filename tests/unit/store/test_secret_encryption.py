"""Encryption of secrets: what is bound to a ciphertext, and what a missing or wrong key says."""

from __future__ import annotations

import stat
import threading
from uuid import uuid4

import pytest
from pydantic import SecretStr

from aaiclick.errors import SecretError
from aaiclick.server_addresses import parse_secret_keys
from aaiclick.settings import Settings
from aaiclick.store.tenancy.secret_encryption import KEY_FILE, create_key_file, load_keys, new_key, write_key_file

ORG = uuid4()


def settings(tmp_path, *keys: str) -> Settings:
    return Settings(AAICLICK_HOME=tmp_path, AAICLICK_SECRETS_KEY=SecretStr(",".join(keys)) if keys else None)


def test_ciphertext_is_decrypted_for_the_same_org_name_and_host_only(tmp_path):
    ring = load_keys(settings(tmp_path, new_key()))
    sealed = ring.encrypt(ORG, "token", "https://a.example", "canary")
    assert b"canary" not in sealed[0]
    assert ring.decrypt(ORG, "token", "https://a.example", *sealed) == "canary"
    for moved in (
        (uuid4(), "token", "https://a.example"),
        (ORG, "other", "https://a.example"),
        (ORG, "token", "https://b.example"),
        (ORG, "token", None),
    ):
        with pytest.raises(SecretError, match="was changed in the database"):
            ring.decrypt(*moved, *sealed)
    with pytest.raises(SecretError, match="was changed in the database"):
        ring.decrypt(ORG, "token", "https://a.example", sealed[0][:-1], sealed[1])


def test_ciphertexts_of_equal_values_differ(tmp_path):
    ring = load_keys(settings(tmp_path, new_key()))
    assert ring.encrypt(ORG, "token", None, "canary")[0] != ring.encrypt(ORG, "token", None, "canary")[0]


def test_old_keys_decrypt_and_the_newest_encrypts(tmp_path):
    old, new = new_key(), new_key()
    sealed = load_keys(settings(tmp_path, old)).encrypt(ORG, "token", None, "canary")
    both = load_keys(settings(tmp_path, new, old))
    assert both.decrypt(ORG, "token", None, *sealed) == "canary"
    again = both.encrypt(ORG, "token", None, "canary")
    assert load_keys(settings(tmp_path, new)).decrypt(ORG, "token", None, *again) == "canary"
    with pytest.raises(
        SecretError, match=f"encrypted with the key {sealed[1]}, which this process does not have"
    ) as caught:
        load_keys(settings(tmp_path, new)).decrypt(ORG, "token", None, *sealed)
    assert "AAICLICK_SECRETS_KEY" in caught.value.remedy


def test_key_file_is_created_once_with_private_mode(tmp_path):
    home = tmp_path / "home"
    key_ids: list[str] = []
    threads = [
        threading.Thread(target=lambda: key_ids.append(create_key_file(settings(home)).newest_id)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(key_ids) == 4
    assert len(set(key_ids)) == 1
    assert stat.S_IMODE((home / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in home.iterdir()] == [KEY_FILE]


def test_readable_or_damaged_key_file_is_refused(tmp_path):
    create_key_file(settings(tmp_path))
    (tmp_path / KEY_FILE).chmod(0o640)
    with pytest.raises(SecretError, match="is readable by other users"):
        load_keys(settings(tmp_path))
    (tmp_path / KEY_FILE).chmod(0o600)
    (tmp_path / KEY_FILE).write_text("not a key\n")
    with pytest.raises(SecretError, match="damaged"):
        load_keys(settings(tmp_path))


def test_key_file_with_several_keys(tmp_path):
    first, second = (parse_secret_keys(new_key())[0] for _ in range(2))
    write_key_file([first, second], settings(tmp_path))
    assert list(load_keys(settings(tmp_path)).keys.values()) == [first, second]


@pytest.mark.parametrize("text", ["", "short", "c2hvcnQ=", "A" * 43 + "=,short"])
def test_error_of_a_malformed_key_does_not_contain_it(text):
    with pytest.raises(ValueError, match="'aaiclick secrets key' makes one") as caught:
        parse_secret_keys(text)
    assert "short" not in str(caught.value)


def test_repr_of_a_key_ring_contains_no_key(tmp_path):
    key = new_key()
    assert key not in repr(load_keys(settings(tmp_path, key)))
    assert repr(parse_secret_keys(key)[0]) not in repr(load_keys(settings(tmp_path, key)))
