"""Names and keys that are stored in indexes: their length is limited, and PostgreSQL has no NUL characters."""

from __future__ import annotations

from aaiclick.errors import SubmitError

MAX_KEY_BYTES = 1_000
"""An entry of an index has at most 2,704 bytes: the org, a name, and a key."""


def check_key(what: str, value: object, *, is_empty_allowed: bool = False) -> None:
    """Raise SubmitError for a value that is no name or key; `what` names it in the message."""
    if not isinstance(value, str) or not (value or is_empty_allowed) or not _is_storable(value):
        raise SubmitError(
            f"{what} is {str(value)[:50]!a}." if isinstance(value, str) else f"{what} is {value!r:.50}.",
            remedy=f"It is text of {0 if is_empty_allowed else 1} to {MAX_KEY_BYTES} bytes, without NUL characters.",
        )


def _is_storable(text: str) -> bool:
    try:
        return len(text.encode()) <= MAX_KEY_BYTES and "\0" not in text
    except UnicodeEncodeError:
        return False
