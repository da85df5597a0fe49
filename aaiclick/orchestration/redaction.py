"""Redaction: values of secrets that an attempt was given are replaced in its log and its errors."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

MASK = "********"
MIN_CHARACTERS = 4
LONG = 24
"""Of longer values the beginning and the end are replaced, too: messages shorten long values."""
PART = 12


class Redactor:
    """Replaces registered values, also where they are URL-encoded, escaped or in base64. Safe between threads."""

    __slots__ = ("_lock", "_spellings")

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._spellings: tuple[str, ...] = ()
        for value in values:
            self.add(value)

    def add(self, value: str) -> None:
        with self._lock:
            known = {*self._spellings, *_spellings(value)}
            self._spellings = tuple(sorted(known, key=len, reverse=True))

    def redact(self, text: str) -> str:
        for spelling in self._spellings:
            text = text.replace(spelling, MASK)
            if len(spelling) >= LONG:
                text = _without_end(_without_start(text, spelling), spelling)
        return text


def _without_start(text: str, spelling: str) -> str:
    """The text with every beginning of the value, of PART characters or more, replaced."""
    at = text.find(spelling[:PART])
    while at >= 0:
        length = PART
        while length < len(spelling) and text[at + length : at + length + 1] == spelling[length]:
            length += 1
        text = text[:at] + MASK + text[at + length :]
        at = text.find(spelling[:PART], at + len(MASK))
    return text


def _without_end(text: str, spelling: str) -> str:
    return _without_start(text[::-1], spelling[::-1])[::-1]


def _spellings(value: str) -> set[str]:
    """A value of several lines is redacted line by line, too: logs and errors cut text at line ends."""
    parts = {value, value.strip(), *(line.strip() for line in value.splitlines())}
    found: set[str] = set()
    for part in parts:
        if len(part) < MIN_CHARACTERS:
            continue
        encoded = base64.b64encode(part.encode()).decode()
        found |= {part, quote(part, safe=""), quote(part), quote_plus(part), json.dumps(part)[1:-1], repr(part)[1:-1]}
        found |= {json.dumps(part, ensure_ascii=False)[1:-1], encoded, encoded.rstrip("="), quote(encoded, safe="")}
        found.add(base64.urlsafe_b64encode(part.encode()).decode().rstrip("="))
    return found
