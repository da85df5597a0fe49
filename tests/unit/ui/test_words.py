"""How values read, and the small parts of pages that need no server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from aaiclick.server.ui import said, words
from aaiclick.server.ui.door import takes_forms
from aaiclick.server.ui.history import Sample, rates
from aaiclick.server.ui.kept import Kept
from aaiclick.server.ui.pace import SHARE, SOONEST_SECONDS, Pace
from aaiclick.server.ui.rendering import environment
from aaiclick.server.ui.routing import local
from aaiclick.server.ui.svg.graph import shortened
from aaiclick.store.reads import began

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (999, "999"), (12345, "12,345"), (123456, "123k"), (2_500_000, "2.5M"), (1.94, "1.9")],
)
def test_numbers_read_well(value, text: str) -> None:
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (-3, "0 ms"), (0.25, "250 ms"), (1.26, "1.3 s"), (59, "59 s"), (61, "1 min 01 s"),
     (3700, "1 h 01 min"), (90000, "1 d 1 h"), (timedelta(minutes=2), "2 min 00 s")],
)  # fmt: skip
def test_durations_read_well(seconds, text: str) -> None:
    assert words.duration(seconds) == text


def test_what_turns_or_hides_text_is_written_out_but_sent_and_copied_as_it_is() -> None:
    turned = "a\u202e<b>\u2066\u200eü שלום 👩\u200d🔬"
    page = environment().from_string(
        '{% import "macros.html" as ui with context %}'
        '{{ turned }}|{{ ui.error_box(turned) }}|{{ {"a": turned} | pretty }}'
        '|{{ ui.act("/x", turned, fields={"name": turned}) }}|{{ ui.copy(turned, "name") }}'
    )
    text, box, value, act, copy = page.render(turned=turned, csrf="", here="").split("|")
    shown = "a\\u202e&lt;b&gt;\\u2066\\u200eü שלום 👩\u200d🔬"
    assert text == shown
    assert shown in box
    assert shown in value
    assert f"{shown}</button>" in act
    for sent in (act, copy):
        assert '="a\u202e&lt;b&gt;\u2066\u200e' in sent
    assert shortened("\u202e" * 30) == "\\u202e" * 3 + "\\u…"


def test_moments_read_well() -> None:
    assert words.ago(NOON, NOON + timedelta(seconds=1)) == "just now"
    assert words.ago(NOON, NOON + timedelta(minutes=3)) == "3 min ago"
    assert words.ago(NOON, NOON - timedelta(hours=2)) == "in 2 h"
    assert words.moment(NOON) == "2026-01-01 12:00:00 UTC"
    assert words.bounded(10_000, 10_000) == "10,000+"
    assert words.size(1_500_000) == "1.5 MB"
    assert words.task_name("a.b.load") == "load"
    assert words.task_name("email:send v1.2") == "email:send v1.2"


def test_an_error_is_led_by_what_it_says() -> None:
    assert words.first_line("Traceback (most recent call last):\n  File x\nValueError: no\n") == "ValueError: no"
    assert words.first_line("it broke\nbecause") == "it broke"
    frames = 'Traceback (most recent call last):\n  File "x"\n    a()\n'
    remedied = f"{frames}ColumnError: No column 'contry'.\nDid you mean 'country'?"
    assert words.first_line(remedied) == "ColumnError: No column 'contry'."
    chained = (
        f"{remedied}\n\nDuring handling of the above exception, another occurred:\n\n{remedied.replace('contry', 'b')}"
    )
    assert words.first_line(chained) == "ColumnError: No column 'b'."
    assert words.first_line(None) == ""


@pytest.mark.parametrize(
    ("status", "kind", "run", "paused", "shown"),
    [
        ("Running", "cron", "COMPLETED", None, "Idle"),
        ("Running", "webhook", None, None, "Idle"),
        ("Pending", "manual", "RUNNING", None, "Running"),
        ("Running", "always_on", None, None, "Running"),
        ("Dead", "cron", "RUNNING", None, "Dead"),
        ("Running", "cron", "RUNNING", NOON, "PAUSED"),
    ],
)
def test_a_source_without_a_run_is_idle(status, kind, run, paused, shown) -> None:
    row = {"status": status, "source": f'{{"kind": "{kind}"}}', "run_status": run, "paused_at": paused}
    assert words.source_state(row) == shown


def test_a_worker_without_a_heartbeat_is_silent() -> None:
    assert words.worker_state("ACTIVE", NOON, NOON + timedelta(seconds=5)) == "ACTIVE"
    assert words.worker_state("ACTIVE", NOON, NOON + timedelta(days=1)) == "SILENT"
    assert words.worker_state("STOPPED", NOON, NOON + timedelta(days=1)) == "STOPPED"


def test_errors_lead_to_the_tasks_they_name_and_codes_of_terminals_are_not_shown() -> None:
    said = "\x1b[1;31mtask 7654321 failed\x1b[0m, so did Task 7654322.\x1b]0;title\x07"
    assert words.by_tasks(said) == [("task ", "7654321"), (" failed, so did Task ", "7654322"), (".", None)]
    assert words.by_tasks("multitask 12") == [("multitask 12", None)]
    assert words.first_line("\x1b[2J\x1b[31mbroken") == "broken"
    box = (
        environment()
        .from_string('{% import "macros.html" as ui %}{{ ui.error_box(said) }}')
        .render(said="<b> task 7654321")
    )
    assert '&lt;b&gt; task <a class="link" href="/tasks/7654321">7654321</a></pre>' in box


def test_what_does_not_work_does_not_count_on() -> None:
    took = environment().from_string('{% import "macros.html" as ui %}{{ ui.task_took(task, now) }}')
    task = {"status": "FAILED", "next_retry_at": NOON, "started_at": NOON, "completed_at": None}
    later = NOON + timedelta(seconds=5)
    assert "–" in took.render(task=task, now=later)
    assert "–" in took.render(task=task | {"status": "PENDING", "next_retry_at": None}, now=later)
    assert "data-since" in took.render(task=task | {"status": "RUNNING", "next_retry_at": None}, now=later)
    ended = task | {"status": "COMPLETED", "next_retry_at": None, "completed_at": later}
    assert ">5.0 s<" in took.render(task=ended, now=later)
    assert began({"started_at": NOON, "restarted_at": later}) == later
    assert began({"started_at": NOON, "restarted_at": None}) == NOON
    assert began({"started_at": None, "restarted_at": later}) is None


def test_details_are_listed_as_words() -> None:
    assert (
        words.listed({"name": "ü", "ids": ["1"], "all": True, "per": None})
        == 'name: ü, ids: ["1"], all: true, per: null'
    )


def test_a_definition_is_no_run_and_does_not_look_like_one() -> None:
    looks = [words.definition_look(each) for each in ("Pending", "Running", "Idle", "Draining", "Dead")]
    assert looks == ["definition", "definition", "definition", "paused", "dead"]


def test_breadcrumbs_end_in_a_name() -> None:
    made = (
        environment()
        .from_string('{% import "macros.html" as ui %}{{ ui.crumbs([("/a", "A"), ("/b", "B")]) }}')
        .render()
    )
    assert made.count("/</span>") == 1
    assert made.endswith('<a href="/b">B</a></nav>')


def test_a_message_survives_the_redirect_and_nothing_else_does() -> None:
    class Answer:
        def set_cookie(self, name: str, value: str, **_: object) -> None:
            self.value = value

    answer = Answer()
    said.Said("Paused <b>.", undo="/jobs/1/resume", fields={"id": "1"}).write(answer)
    assert said.read(answer.value) == said.Said("Paused <b>.", "good", "/jobs/1/resume", {"id": "1"})
    for broken in (None, "", "!!", "AAAA", "x" * 5000, "W10="):
        assert said.read(broken) is None


def test_many_pages_are_told_to_wait() -> None:
    pace = Pace()
    pace.listeners = 1
    assert pace.seconds == SOONEST_SECONDS
    pace.listeners = 50
    for _ in range(100):
        pace.took(0.02)
    assert pace.seconds == pytest.approx(50 * 0.02 / SHARE, rel=0.01)


async def test_what_several_want_is_asked_for_once() -> None:
    kept, asked = Kept(), []

    async def ask() -> int:
        asked.append(1)
        await asyncio.sleep(0)
        return len(asked)

    assert await asyncio.gather(*(kept.get("a", ask, seconds=60) for _ in range(5))) == [1] * 5
    assert await kept.get("b", ask, seconds=60) == 2
    assert await kept.get("a", ask, seconds=60) == 1
    for key in range(1_000):
        await kept.get(key, ask, seconds=-1)
    assert len(kept._answers) <= 500


def test_rates_come_from_totals() -> None:
    def sample(seconds: int, completed: int | None) -> Sample:
        return Sample(NOON + timedelta(seconds=seconds), 0, 0, 0, 0, 0.0, completed, 0)

    found = rates([sample(0, 0), sample(10, 100), sample(20, 100), sample(30, 300), sample(40, 10), sample(100, 10)])
    assert [rate for _, rate in found] == [10.0, 10.0, None, 0.0]
    assert rates([sample(0, None), sample(10, None)]) == []


def test_only_addresses_of_ours_are_gone_to() -> None:
    assert local("/jobs?q=a#b") == "/jobs?q=a#b"
    for foreign in ("//x", "/\\x", "http://x", "", "x", "/\nx", "javascript:1"):
        assert local(foreign) == "/"
    assert takes_forms("/jobs/cancel")
    assert not takes_forms("/v1/jobs")
    assert not takes_forms("//v1/jobs")


def test_every_template_can_be_read_and_none_switches_escaping_off() -> None:
    loader = environment()
    for name in loader.list_templates():
        loader.get_template(name)
        source = loader.loader.get_source(loader, name)[0]
        assert "| safe" not in source
        assert "|safe" not in source
        assert "autoescape" not in source
        assert " style=" not in source
        assert "onclick" not in source
