"""Limits of request bodies: depth, number of values, UTF-8, memory."""

from __future__ import annotations

from contextlib import suppress

import pytest

from aaiclick.server.problem_responses import BusyError, MalformedError, TooLargeError, TooManyRequestsError
from aaiclick.server.request_body import ANONYMOUS_BYTES, MAX_DEPTH, MAX_VALUES, BodyBudget, JsonScanner

ACCEPTED = {
    "empty object": b"{}",
    "nested to the limit": b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
    "brackets in a string": b'{"a": "' + b"[" * 1000 + b'"}',
    "brackets after an escaped quote": b'{"a": "\\"' + b"[" * 1000 + b'"}',
    "a string that ends with a backslash": b'{"a": "\\\\", "b": [[]]}',
    "flat objects": b"[" + b"{}," * 1000 + b"{}]",
    "values to the limit": b"[" + b"1," * (MAX_VALUES - 1) + b"1]",
    "commas in a string": b'"' + b"," * (MAX_VALUES + 1) + b'"',
    "two-byte characters": '["ä€😀"]'.encode(),
}
REFUSED = {
    "deep arrays": (b"[" * (MAX_DEPTH + 1), MalformedError, "nested deeper"),
    "deep objects": (b'{"a":' * 100_000, MalformedError, "nested deeper"),
    "deep after a string": (b'"x"' + b"[" * 1_000_000, MalformedError, "nested deeper"),
    "closing brackets": (b"]" * 1_000_000, MalformedError, "not JSON"),
    "closing brackets after a value": (b"[]" + b"}" * 1000, MalformedError, "not JSON"),
    "many values": (b"[" + b"1," * MAX_VALUES + b"1]", TooLargeError, "values"),
    "many objects": (b"[" + b"{}," * MAX_VALUES + b"{}]", TooLargeError, "values"),
    "no UTF-8": (b"\xff\xfe", MalformedError, "not UTF-8"),
    "half a character": (b'{"a": "\xc3"}', MalformedError, "not UTF-8"),
    "half a character at the end": (b"\xc3", MalformedError, "not UTF-8"),
}


def scan(text: bytes, size: int) -> None:
    scanner = JsonScanner()
    for start in range(0, len(text), size):
        scanner.feed(text[start : start + size], last=start + size >= len(text))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 65536, 10**9])
@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_scanner_accepts_plain_json_in_chunks_of_any_size(text: bytes, size: int) -> None:
    scan(text if size > 10 else text[:20_000] if text.startswith(b'"') else text, max(size, len(text) // 100_000))


@pytest.mark.parametrize("size", [7, 65536, 10**9])
@pytest.mark.parametrize(("text", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_scanner_refuses_excess_in_chunks_of_any_size(text: bytes, error: type, message: str, size: int) -> None:
    with pytest.raises(error, match=message):
        scan(text, size)


def test_scanner_stops_at_the_first_excess() -> None:
    scanner = JsonScanner()
    with pytest.raises(MalformedError):
        scanner.feed(b"]")


def test_budget_limits_one_client_before_it_limits_all() -> None:
    budget = BodyBudget(1000)
    for _ in range(2):
        budget.reserve("first", 1000, anonymous=False)
    with pytest.raises(TooManyRequestsError):
        budget.reserve("first", 1, anonymous=False)
    for _ in range(2):
        budget.reserve("second", 1000, anonymous=False)
    with pytest.raises(BusyError):
        budget.reserve("third", 1, anonymous=False)
    budget.release("first", 1000, anonymous=False)
    budget.reserve("third", 1000, anonymous=False)


def test_budget_keeps_memory_for_clients_with_credentials() -> None:
    budget = BodyBudget(16 * ANONYMOUS_BYTES)
    for request in range(100):
        with suppress(BusyError, TooManyRequestsError):
            budget.reserve(str(request % 10), ANONYMOUS_BYTES, anonymous=True)
    assert budget.total <= 8 * ANONYMOUS_BYTES
    budget.reserve("key", 16 * ANONYMOUS_BYTES, anonymous=False)


def test_budget_removes_clients_without_requests() -> None:
    budget = BodyBudget(1000)
    budget.reserve("client", 10, anonymous=False)
    budget.release("client", 10, anonymous=False)
    assert budget.total == 0
    assert not budget._used
