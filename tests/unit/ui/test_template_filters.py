"""Template filters, and parts of the web UI that need no server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from aaiclick.server.ui import flash, template_filters
from aaiclick.server.ui.dispatch import accepts_forms
from aaiclick.server.ui.metrics_sampler import Sample, completion_rates
from aaiclick.server.ui.refresh_interval import CPU_SHARE, MIN_SECONDS, RefreshInterval
from aaiclick.server.ui.routing import local_url
from aaiclick.server.ui.svg.job_graph import shorten_text
from aaiclick.server.ui.templating import build_environment
from aaiclick.store.engine.queries import last_run_started_at

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (999, "999"), (12345, "12,345"), (123456, "123k"), (2_500_000, "2.5M"), (1.94, "1.9")],
)
def test_format_number(value, text: str) -> None:
    assert template_filters.format_number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (-3, "0 ms"), (0.25, "250 ms"), (1.26, "1.3 s"), (59, "59 s"), (61, "1 min 01 s"),
     (3700, "1 h 01 min"), (90000, "1 d 1 h"), (timedelta(minutes=2), "2 min 00 s")],
)  # fmt: skip
def test_format_duration(seconds, text: str) -> None:
    assert template_filters.format_duration(seconds) == text


def test_invisible_characters_are_escaped_except_in_form_values() -> None:
    turned = "a\u202e<b>\u2066\u200eü שלום 👩\u200d🔬"
    page = build_environment().from_string(
        '{% import "macros.html" as ui with context %}'
        '{{ turned }}|{{ ui.error_box(turned) }}|{{ {"a": turned} | format_json }}'
        '|{{ ui.act("/x", turned, fields={"name": turned}) }}|{{ ui.copy(turned, "name") }}'
    )
    text, box, value, act, copy = page.render(turned=turned, csrf="", current_url="").split("|")
    shown = "a\\u202e&lt;b&gt;\\u2066\\u200eü שלום 👩\u200d🔬"
    assert text == shown
    assert shown in box
    assert shown in value
    assert f"{shown}</button>" in act
    for sent in (act, copy):
        assert '="a\u202e&lt;b&gt;\u2066\u200e' in sent
    assert shorten_text("\u202e" * 30) == "\\u202e" * 3 + "\\u…"


def test_format_times_sizes_and_names() -> None:
    assert template_filters.format_relative_time(NOON, NOON + timedelta(seconds=1)) == "just now"
    assert template_filters.format_relative_time(NOON, NOON + timedelta(minutes=3)) == "3 min ago"
    assert template_filters.format_relative_time(NOON, NOON - timedelta(hours=2)) == "in 2 h"
    assert template_filters.format_utc_time(NOON) == "2026-01-01 12:00:00 UTC"
    assert template_filters.format_capped_count(10_000, 10_000) == "10,000+"
    assert template_filters.format_bytes(1_500_000) == "1.5 MB"
    assert template_filters.task_name("a.b.load") == "load"
    assert template_filters.task_name("email:send v1.2") == "email:send v1.2"


def test_error_headline() -> None:
    assert (
        template_filters.error_headline("Traceback (most recent call last):\n  File x\nValueError: no\n")
        == "ValueError: no"
    )
    assert template_filters.error_headline("it broke\nbecause") == "it broke"
    frames = 'Traceback (most recent call last):\n  File "x"\n    a()\n'
    remedied = f"{frames}ColumnError: No column 'contry'.\nDid you mean 'country'?"
    assert template_filters.error_headline(remedied) == "ColumnError: No column 'contry'."
    chained = (
        f"{remedied}\n\nDuring handling of the above exception, another occurred:\n\n{remedied.replace('contry', 'b')}"
    )
    assert template_filters.error_headline(chained) == "ColumnError: No column 'b'."
    assert template_filters.error_headline(None) == ""


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
def test_source_state(status, kind, run, paused, shown) -> None:
    row = {"status": status, "source": f'{{"kind": "{kind}"}}', "run_status": run, "paused_at": paused}
    assert template_filters.source_state(row) == shown


def test_worker_state_without_heartbeat_is_silent() -> None:
    assert template_filters.worker_state("ACTIVE", NOON, NOON + timedelta(seconds=5)) == "ACTIVE"
    assert template_filters.worker_state("ACTIVE", NOON, NOON + timedelta(days=1)) == "SILENT"
    assert template_filters.worker_state("STOPPED", NOON, NOON + timedelta(days=1)) == "STOPPED"


def test_error_box_links_tasks_and_strips_ansi_codes() -> None:
    error = "\x1b[1;31mtask 7654321 failed\x1b[0m, so did Task 7654322.\x1b]0;title\x07"
    assert template_filters.split_at_task_ids(error) == [
        ("task ", "7654321"),
        (" failed, so did Task ", "7654322"),
        (".", None),
    ]
    assert template_filters.split_at_task_ids("multitask 12") == [("multitask 12", None)]
    assert template_filters.error_headline("\x1b[2J\x1b[31mbroken") == "broken"
    box = (
        build_environment()
        .from_string('{% import "macros.html" as ui %}{{ ui.error_box(said) }}')
        .render(said="<b> task 7654321")
    )
    assert '&lt;b&gt; task <a class="link" href="/tasks/7654321">7654321</a></pre>' in box


def test_duration_counts_only_while_running() -> None:
    took = build_environment().from_string('{% import "macros.html" as ui %}{{ ui.task_took(task, now) }}')
    task = {"status": "FAILED", "next_retry_at": NOON, "started_at": NOON, "completed_at": None}
    later = NOON + timedelta(seconds=5)
    assert "–" in took.render(task=task, now=later)
    assert "–" in took.render(task=task | {"status": "PENDING", "next_retry_at": None}, now=later)
    assert "data-since" in took.render(task=task | {"status": "RUNNING", "next_retry_at": None}, now=later)
    ended = task | {"status": "COMPLETED", "next_retry_at": None, "completed_at": later}
    assert ">5.0 s<" in took.render(task=ended, now=later)
    assert last_run_started_at({"started_at": NOON, "restarted_at": later}) == later
    assert last_run_started_at({"started_at": NOON, "restarted_at": None}) == NOON
    assert last_run_started_at({"started_at": None, "restarted_at": later}) is None


def test_format_pairs() -> None:
    assert (
        template_filters.format_pairs({"name": "ü", "ids": ["1"], "all": True, "per": None})
        == 'name: ü, ids: ["1"], all: true, per: null'
    )


def test_definition_class() -> None:
    classes = [
        template_filters.definition_class(status) for status in ("Pending", "Running", "Idle", "Draining", "Dead")
    ]
    assert classes == ["definition", "definition", "definition", "paused", "dead"]


def test_breadcrumbs() -> None:
    markup = (
        build_environment()
        .from_string('{% import "macros.html" as ui %}{{ ui.crumbs([("/a", "A"), ("/b", "B")]) }}')
        .render()
    )
    assert markup.count("/</span>") == 1
    assert markup.endswith('<a href="/b">B</a></nav>')


def test_flash_message_round_trip() -> None:
    class Answer:
        def set_cookie(self, name: str, value: str, **_: object) -> None:
            self.value = value

    answer = Answer()
    flash.FlashMessage("Paused <b>.", undo="/jobs/1/resume", fields={"id": "1"}).set_cookie(answer)
    assert flash.read_cookie(answer.value) == flash.FlashMessage("Paused <b>.", "good", "/jobs/1/resume", {"id": "1"})
    for broken in (None, "", "!!", "AAAA", "x" * 5000, "W10="):
        assert flash.read_cookie(broken) is None


def test_refresh_interval_grows_with_open_pages() -> None:
    interval = RefreshInterval()
    interval.open_pages = 1
    assert interval.seconds == MIN_SECONDS
    interval.open_pages = 50
    for _ in range(100):
        interval.record_page_time(0.02)
    assert interval.seconds == pytest.approx(50 * 0.02 / CPU_SHARE, rel=0.01)


def test_completion_rates() -> None:
    def sample(seconds: int, completed: int | None) -> Sample:
        return Sample(NOON + timedelta(seconds=seconds), 0, 0, 0, 0, 0.0, completed, 0)

    totals = ((0, 0), (10, 100), (20, 100), (30, 300), (40, 10), (100, 10))
    rates = completion_rates([sample(seconds, completed) for seconds, completed in totals])
    assert [rate for _, rate in rates] == [10.0, 10.0, None, 0.0]
    assert completion_rates([sample(0, None), sample(10, None)]) == []


def test_local_url_and_accepts_forms() -> None:
    assert local_url("/jobs?q=a#b") == "/jobs?q=a#b"
    for foreign in ("//x", "/\\x", "http://x", "", "x", "/\nx", "javascript:1"):
        assert local_url(foreign) == "/"
    assert accepts_forms("/jobs/cancel")
    assert not accepts_forms("/v1/jobs")
    assert not accepts_forms("//v1/jobs")


def test_all_templates_compile_with_escaping() -> None:
    loader = build_environment()
    for name in loader.list_templates():
        loader.get_template(name)
        source = loader.loader.get_source(loader, name)[0]
        assert "| safe" not in source
        assert "|safe" not in source
        assert "autoescape" not in source
        assert " style=" not in source
        assert "onclick" not in source
