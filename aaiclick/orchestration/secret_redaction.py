"""Redaction of secrets in the log and the errors of an attempt."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

MASK = "********"
MIN_CHARACTERS = 4
PARTIAL_LENGTH = 24
"""Prefixes and suffixes of values this long are redacted too, since messages shorten long values."""
PREFIX_LENGTH = 12


class Redactor:
    """Replaces registered values, also if they are URL-encoded, escaped or in base64. Thread-safe."""

    __slots__ = ("_lock", "_spellings")

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._spellings: tuple[str, ...] = ()
        for value in values:
            self.add(value)

    def add(self, value: str) -> None:
        with self._lock:
            spellings = {*self._spellings, *_spellings(value)}
            self._spellings = tuple(sorted(spellings, key=len, reverse=True))

    def redact(self, text: str) -> str:
        for spelling in self._spellings:
            text = text.replace(spelling, MASK)
            if len(spelling) >= PARTIAL_LENGTH:
                text = _redact_suffixes(_redact_prefixes(text, spelling), spelling)
        return text


def _redact_prefixes(text: str, spelling: str) -> str:
    """Replace every prefix of the value with PREFIX_LENGTH characters or more."""
    start = text.find(spelling[:PREFIX_LENGTH])
    while start >= 0:
        length = PREFIX_LENGTH
        while length < len(spelling) and text[start + length : start + length + 1] == spelling[length]:
            length += 1
        text = text[:start] + MASK + text[start + length :]
        start = text.find(spelling[:PREFIX_LENGTH], start + len(MASK))
    return text


def _redact_suffixes(text: str, spelling: str) -> str:
    return _redact_prefixes(text[::-1], spelling[::-1])[::-1]


def _spellings(value: str) -> set[str]:
    """Encodings of a value and of each of its lines, since logs and errors split text at line ends."""
    parts = {value, value.strip(), *(line.strip() for line in value.splitlines())}
    spellings: set[str] = set()
    for part in parts:
        if len(part) < MIN_CHARACTERS:
            continue
        encoded = base64.b64encode(part.encode()).decode()
        spellings |= {
            part,
            quote(part, safe=""),
            quote(part),
            quote_plus(part),
            json.dumps(part)[1:-1],
            repr(part)[1:-1],
        }
        spellings |= {json.dumps(part, ensure_ascii=False)[1:-1], encoded, encoded.rstrip("="), quote(encoded, safe="")}
        spellings.add(base64.urlsafe_b64encode(part.encode()).decode().rstrip("="))
    return spellings
