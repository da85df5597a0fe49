"""Encryption of organisations' secrets: AES-256-GCM, with keys of AAICLICK_SECRETS_KEY or of `secrets.key` in the home.

Organisation, name and host are associated data: a row that is copied to another organisation, renamed or bound to
another host cannot be decrypted. The first key encrypts, all decrypt: `aaiclick secrets rotate` changes keys.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import secrets
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.errors import SecretError
from aaiclick.local.home import write_private
from aaiclick.server_addresses import SECRET_KEY_BYTES, parse_secret_keys
from aaiclick.settings import Settings, get_settings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_FILE = "secrets.key"
NONCE_BYTES = 12
GROUP_OR_OTHER_BITS = 0o077


@dataclass(frozen=True)
class KeyRing:
    """Keys by id, the newest first."""

    keys: dict[str, bytes] = field(repr=False)

    @property
    def newest_id(self) -> str:
        return next(iter(self.keys))

    def encrypt(self, org_id: UUID, name: str, host: str | None, value: str) -> tuple[bytes, str]:
        """The ciphertext, and the id of its key."""
        nonce = os.urandom(NONCE_BYTES)
        sealed = _create_cipher(self.keys[self.newest_id]).encrypt(
            nonce, value.encode(), _associated_data(org_id, name, host)
        )
        return nonce + sealed, self.newest_id

    def decrypt(self, org_id: UUID, name: str, host: str | None, ciphertext: bytes, key_id: str) -> str:
        """Decrypt a secret; raises SecretError, which does not contain the value."""
        key = self.keys.get(key_id)
        if key is None:
            raise missing_key_error(key_id)
        from cryptography.exceptions import InvalidTag

        nonce, sealed = ciphertext[:NONCE_BYTES], ciphertext[NONCE_BYTES:]
        try:
            return _create_cipher(key).decrypt(nonce, sealed, _associated_data(org_id, name, host)).decode()
        except (InvalidTag, ValueError):
            raise SecretError(
                f"The secret {name!r} cannot be decrypted: its row was changed in the database.",
                remedy="Set it again: aaiclick secrets set.",
            ) from None


def load_keys(settings: Settings | None = None) -> KeyRing:
    """The keys of this process; empty if none is configured and there is no key file."""
    settings = settings or get_settings()
    if settings.secrets_key is not None:
        return _to_key_ring(parse_secret_keys(settings.secrets_key.get_secret_value()))
    file = settings.home / KEY_FILE
    try:
        file_stat = file.stat()
        text = file.read_text(encoding="ascii")
    except FileNotFoundError:
        return KeyRing({})
    except (OSError, ValueError) as error:
        raise SecretError(f"{file} cannot be read: {error}.", remedy="Check the owner of the file.") from None
    if stat.S_IMODE(file_stat.st_mode) & GROUP_OR_OTHER_BITS:
        raise SecretError(f"{file} is readable by other users.", remedy=f"chmod 600 {file}")
    try:
        return _to_key_ring(parse_secret_keys(text))
    except ValueError:
        raise SecretError(f"{file} is damaged.", remedy="Restore it from a backup.") from None


def create_key_file(settings: Settings | None = None) -> KeyRing:
    """The keys of the key file, which is created with one key if it does not exist."""
    file = (settings or get_settings()).home / KEY_FILE
    temporary = file.with_name(f".{KEY_FILE}.{secrets.token_hex(8)}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as stream:
            stream.write(new_key() + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileExistsError):  # another process has created it
            file.hardlink_to(temporary)
        temporary.unlink()
    except OSError as error:
        raise SecretError(
            f"The key file {file} cannot be written: {error.strerror}.", remedy="Set AAICLICK_SECRETS_KEY instead."
        ) from None
    return load_keys(settings)


def write_key_file(keys: list[bytes], settings: Settings | None = None) -> None:
    """Replace the keys of the file."""
    file = (settings or get_settings()).home / KEY_FILE
    write_private(file, "".join(base64.urlsafe_b64encode(key).decode() + "\n" for key in keys))


def new_key() -> str:
    """A new random key as text."""
    return base64.urlsafe_b64encode(secrets.token_bytes(SECRET_KEY_BYTES)).decode()


def missing_key_error(key_id: str) -> SecretError:
    return SecretError(
        f"Secrets of this installation are encrypted with the key {key_id}, which this process does not have.",
        remedy=f"Set AAICLICK_SECRETS_KEY to the same keys on every server and worker, or copy {KEY_FILE} of the "
        "AAICLICK_HOME where it was created.",
    )


def _to_key_ring(keys: list[bytes]) -> KeyRing:
    return KeyRing({hashlib.sha256(key).hexdigest()[:8]: key for key in keys})


def _associated_data(org_id: UUID, name: str, host: str | None) -> bytes:
    return json.dumps(["aaiclick secret", str(org_id), name, host]).encode()


def _create_cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers import aead  # loads OpenSSL

    return aead.AESGCM(key)
