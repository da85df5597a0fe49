"""How the command line puts long things into short ones."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import click
import pytest

from aaiclick.cli.database import first_line
from aaiclick.cli.kinds import Number
from aaiclick.cli.main import cli, run
from aaiclick.cli.output import print_record, print_records
from aaiclick.cli.queues import _worker
from aaiclick.cli.run import _print
from aaiclick.store.keys import prefix_of

TRACE = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
    raise ConversionError("Column 'a' is odd.", remedy="Make it even.")
ConversionError: Column 'a' is odd.
Make it even."""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TRACE, "ConversionError: Column 'a' is odd."),
        ("The job would have 9 tasks.\nRaise the limit.", "The job would have 9 tasks."),
        (None, ""),
    ],
)
def test_an_error_in_a_table_is_what_happened_and_not_the_remedy(error: str | None, line: str) -> None:
    assert first_line(error) == line


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("'from 999.0'", "from 999.0"),
        ("[{'a': 1, 'b': None}, True]", [{"a": 1, "b": None}, True]),
        ("{'at': datetime.date(2026, 1, 1)}", "{'at': datetime.date(2026, 1, 1)}"),
        ("[1, 2] … (20 rows)", "[1, 2] … (20 rows)"),
        ("cannot be shown: It is gone.", "cannot be shown: It is gone."),
        ("b'raw'", "b'raw'"),
        ("nan", "nan"),
    ],
)
def test_what_a_job_came_to_is_a_value_where_json_has_it_and_words_in_a_table(words: str, value, capsys) -> None:
    times = ("restarted_at", "started_at", "completed_at", "deadline_at", "cancel_requested_at", "paused_at")
    job = dict.fromkeys((*times, "timeout_seconds", "error")) | {
        "id": 1, "name": "j", "status": "COMPLETED", "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "total_tasks": 4, "open_tasks": 0, "failed_tasks": 0, "cancelled_tasks": 0,
    }  # fmt: skip
    assert _print(job, {"report": words}, "json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["total_tasks"], said["created_at"], said["took_seconds"]) == (4, "2026-01-01T00:00:00+00:00", None)
    assert said["results"] == {"report": value}
    assert _print(job, {"report": words}, "table") == 0
    said = capsys.readouterr().out
    assert "4/4" in said
    assert f"report: {words}" in said


@pytest.mark.parametrize("terminal", [True, False])
def test_what_would_turn_or_move_the_text_of_a_table_is_shown_instead(terminal: bool, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    print_records([{"name": "in\u202evoice\x1b[2J é", "state": "ok"}], "table")
    said = capsys.readouterr().out
    assert "in\\u202evoice\\x1b[2J é" in said
    assert "\u202e" not in said
    assert "\x1b[2J" not in said


@pytest.mark.parametrize("terminal", [True, False])
def test_a_list_of_nothing_says_so_beside_the_data(terminal: bool, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    print_records([], "table", nothing="There are no jobs.")
    assert capsys.readouterr() == ("", "There are no jobs.\n")
    print_records([], "json", nothing="There are no jobs.")
    assert capsys.readouterr() == ("[]\n", "")


def test_one_thing_is_one_object_for_a_program(capsys) -> None:
    print_record({"id": "7"}, "json")
    assert json.loads(capsys.readouterr().out) == {"id": "7"}
    print_record({"id": "7"}, "table")
    assert capsys.readouterr().out == "id\n7\n"


def commands(group: click.Group, *words: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None, name
        if isinstance(found, click.Group):
            yield from commands(found, *words, name)
        else:
            yield " ".join([*words, name]), found


ALL = dict(commands(cli))


@pytest.mark.parametrize("line", ALL)
def test_every_command_and_every_option_has_words(line: str) -> None:
    assert ALL[line].help
    options = [each for each in ALL[line].params if isinstance(each, click.Option)]
    assert [each.name for each in options if not each.help] == []


IDS = [
    "jobs show", "jobs cancel", "jobs cancel 7", "jobs retry", "jobs release", "jobs pause", "jobs resume",
    "jobs ls --before", "tasks ls", "tasks ls 7 --after", "tasks show", "tasks why", "tasks cancel", "tasks clear",
    "logs", "dlq redrive", "dlq discard", "events retry", "workers drain", "data ls --job",
]  # fmt: skip


@pytest.mark.parametrize("line", IDS)
def test_a_number_that_cannot_be_an_id_is_refused_before_anybody_is_asked(line: str, capsys) -> None:
    """So the words are the same beside a database and from afar."""
    for number in ("99999999999999999999", str(2**63)):
        assert run([*line.split(), number]) == 2
        assert f"{number} cannot be an id: ids are numbers from 1 to {2**63 - 1}." in capsys.readouterr().err
    assert run([*line.split(), "x"]) == 2
    assert "'x' is not a valid integer" in capsys.readouterr().err


def test_no_command_takes_any_number_for_an_id() -> None:
    plain = {each.name for command in ALL.values() for each in command.params if each.type is click.INT}
    assert plain == {"seed", "inherited"}


@pytest.mark.parametrize(
    "line",
    ["dlq redrive --all --rate nan", "dlq redrive --all --rate inf", "dlq redrive --all --rate 1e-12",
     "key create k --scope reader --days nan", "key create k --scope reader --days 1e300",
     "types retry t --base-seconds inf", "org create acme --rate nan", "datasets query 'SELECT 1' --seconds nan",
     "user create ''", f"user create {'s' * 501}", "user create ada --email ''", f"user set ada --email {'e' * 201}",
     "key create '' --scope reader", f"role create ra --name {'n' * 201}", "org create acme --name ''",
     "dlq discard --all 7", "dlq discard --all --type t", "dlq discard 1_005", "user create b\udcffd"],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_before_anybody_is_asked(line: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr("aaiclick.cli.remote.with_database", None)
    assert run(shlex.split(line)) == 2
    assert "defect" not in capsys.readouterr().err


def test_no_option_takes_a_number_that_is_none() -> None:
    ranges = [
        (line, parameter.name)
        for line, command in ALL.items()
        for parameter in command.params
        if isinstance(parameter.type, click.FloatRange) and not isinstance(parameter.type, Number)
    ]
    assert ranges == []


def test_a_key_is_known_by_as_much_of_it_as_anybody_gives() -> None:
    secret = f"aai_{'p' * 12}_{'s' * 43}"
    assert {prefix_of(text) for text in (secret, secret[:-1], "aai_" + "p" * 12, "p" * 12)} == {"p" * 12}


@pytest.mark.parametrize(
    ("status", "age", "shown"), [("ACTIVE", 0, "ACTIVE"), ("ACTIVE", 1, "SILENT"), ("STOPPED", 1, "STOPPED")]
)
def test_a_worker_without_heartbeats_is_listed_as_silent(status, age, shown):
    row = dict.fromkeys(
        ("id", "hostname", "pid", "pool_size", "is_leader", "drain_requested_at", "stopped_at", "version")
    )
    assert (
        _worker(row | {"status": status, "last_heartbeat": datetime.now(UTC) - timedelta(days=age)})["status"] == shown
    )
