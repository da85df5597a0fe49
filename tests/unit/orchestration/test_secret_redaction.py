"""Redaction of secrets, also in their encoded forms."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, urlencode

import pytest

from aaiclick.orchestration.retry_policy import error_fingerprint
from aaiclick.orchestration.secret_redaction import MASK, Redactor
from aaiclick.orchestration.worker.logs import CHUNK_CHARACTERS, TaskLog, _current, captured_output, set_log

SECRET = "p@ss word/ü\n'\"+"


@pytest.mark.parametrize(
    "spelling",
    [
        SECRET, quote(SECRET), quote(SECRET, safe=""), urlencode({"k": SECRET}), json.dumps({"k": SECRET}),
        json.dumps({"k": SECRET}, ensure_ascii=False), repr({"k": SECRET}), base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ],
)  # fmt: skip
def test_every_spelling_is_replaced(spelling):
    shown = Redactor([SECRET]).redact(f"before {spelling} after")
    assert MASK in shown
    assert "p@ss word" not in shown
    assert spelling not in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")


def test_lines_of_a_value_are_replaced_one_by_one():
    redactor = Redactor(["-----BEGIN KEY-----\nMIIEabcd\n-----END KEY-----"])
    assert redactor.redact("line: MIIEabcd.") == f"line: {MASK}."


def test_shortened_long_value_is_replaced():
    value = "first-part-of-a-token-and-the-last-part-of-it"
    redactor = Redactor([value])
    for shown in (value[:20], value[-20:], f"{value!r:.30}", f"{value[:25]}...{value[-15:]}"):
        redacted = redactor.redact(f"bad {shown} here")
        assert MASK in redacted
        assert "part-of" not in redacted
    assert redactor.redact("a token and the last part") == "a token and the last part"
    assert redactor.redact(value[:15] * 3) == MASK * 3


def test_very_short_values_are_not_replaced():
    assert Redactor(["ab\nlong enough"]).redact("a table of cables") == "a table of cables"


def test_longer_values_are_replaced_first():
    assert Redactor(["sesame", "sesame-street"]).redact("sesame-street") == MASK


def test_task_log_is_redacted(tmp_path):
    log = TaskLog(tmp_path / "7.log", 1)
    log.write("canary before it is a secret\n")
    log.redactor.add("hidden-canary")
    log.write("x" * (CHUNK_CHARACTERS - 5) + "hidden-canary" + "\n")
    log.close()
    text = (tmp_path / "7.log").read_text()
    assert "hidden-canary" not in text
    assert MASK in text
    assert "before it is a secret" in text


def test_output_after_the_attempt_is_redacted(tmp_path, capsys):
    log = TaskLog(tmp_path / "7.log", 1)
    log.redactor.add("hidden-canary")
    with captured_output():
        token = set_log(log)
        log.close()
        print("late hidden-canary")
        _current.reset(token)
    assert capsys.readouterr().out == f"late {MASK}\n"


def test_a_fingerprint_does_not_depend_on_a_secret():
    redact = Redactor(["alpha-secret", "omega-secret"]).redact
    first, second = (error_fingerprint(ValueError(f"bad {word}"), redact) for word in ("alpha-secret", "omega-secret"))
    assert first == second
