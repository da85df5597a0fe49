"""Output and parameter types of the command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import click
import pytest

from aaiclick.api.jobs import Job
from aaiclick.api.tasks import Task
from aaiclick.api.workers import Worker
from aaiclick.cli.database import error_headline
from aaiclick.cli.main import cli, run_command
from aaiclick.cli.output import print_record, print_records
from aaiclick.cli.param_types import Number
from aaiclick.cli.queues_and_workers import _worker_row
from aaiclick.cli.run_job import _print_result
from aaiclick.cli.tasks import task_json
from aaiclick.store.tenancy.api_keys import parse_key_prefix

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
def test_error_headline_omits_the_remedy_in_tables(error: str | None, line: str) -> None:
    assert error_headline(error) == line


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'from 999.0'", "from 999.0"),
        ("[{'a': 1, 'b': None}, True]", [{"a": 1, "b": None}, True]),
        ("[1, 2] … (20 rows)", list(range(20))),
        ("cannot be shown: It is gone.", "cannot be shown: It is gone."),
    ],
)
def test_job_results_are_json_values_or_text(text: str, value, capsys) -> None:
    times = ("restarted_at", "started_at", "completed_at", "deadline_at", "cancel_requested_at", "paused_at")
    job = Job(
        **dict.fromkeys((*times, "timeout_seconds", "error", "parent_job_id", "parent_task_id")),
        id=1, name="j", status="COMPLETED", created_at=datetime(2026, 1, 1, tzinfo=UTC),
        total_tasks=4, open_tasks=0, failed_tasks=0, cancelled_tasks=0,
    )  # fmt: skip
    assert _print_result(job, [("report", text, value)], "json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["total_tasks"], printed["created_at"], printed["took_seconds"]) == (
        4,
        "2026-01-01T00:00:00Z",
        None,
    )
    assert printed["results"] == [{"name": "report", "value": value}]
    assert _print_result(job, [("report", text, value)], "table") == 0
    printed = capsys.readouterr().out
    assert "4/4" in printed
    assert f"report: {text}" in printed


@pytest.mark.parametrize("terminal", [True, False])
def test_control_characters_in_tables_are_escaped(terminal: bool, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    print_records([{"name": "in\u202evoice\x1b[2J é", "state": "ok"}], "table")
    printed = capsys.readouterr().out
    assert "in\\u202evoice\\x1b[2J é" in printed
    assert "\u202e" not in printed
    assert "\x1b[2J" not in printed


@pytest.mark.parametrize("terminal", [True, False])
def test_empty_list_prints_a_message_on_stderr(terminal: bool, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    print_records([], "table", empty_message="No jobs found.")
    assert capsys.readouterr() == ("", "No jobs found.\n")
    print_records([], "json", empty_message="No jobs found.")
    assert capsys.readouterr() == ("[]\n", "")


def test_single_record_is_a_json_object(capsys) -> None:
    print_record({"id": "7"}, "json")
    assert json.loads(capsys.readouterr().out) == {"id": "7"}
    print_record({"id": "7"}, "table")
    assert capsys.readouterr().out == "id\n7\n"


def iter_commands(group: click.Group, *prefix: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            yield from iter_commands(command, *prefix, name)
        else:
            yield " ".join([*prefix, name]), command


ALL = dict(iter_commands(cli))


@pytest.mark.parametrize("line", ALL)
def test_every_command_and_option_has_help(line: str) -> None:
    assert ALL[line].help
    options = [option for option in ALL[line].params if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []


IDS = [
    "jobs show", "jobs cancel", "jobs cancel 381405937744023552", "jobs retry", "jobs release", "jobs pause",
    "jobs resume", "jobs ls --before", "tasks ls", "tasks ls 381405937744023552 --after", "tasks show", "tasks why",
    "tasks cancel", "tasks clear", "logs", "dlq redrive", "dlq discard", "events retry", "workers drain",
    "data ls --job",
]  # fmt: skip


@pytest.mark.parametrize("line", IDS)
def test_invalid_id_is_refused_before_connecting(line: str, capsys) -> None:
    """Local and remote mode report the same error."""
    for number in ("99999999999999999999", str(2**63)):
        assert run_command([*line.split(), number]) == 2
        assert f"{number} is not a valid id: ids are numbers from 1 to {2**63 - 1}." in capsys.readouterr().err
    assert run_command([*line.split(), "x"]) == 2
    assert "'x' is not a valid id: ids are numbers." in capsys.readouterr().err


def test_id_parameters_are_validated() -> None:
    plain = {parameter.name for command in ALL.values() for parameter in command.params if parameter.type is click.INT}
    assert plain == {"seed", "inherited"}


@pytest.mark.parametrize(
    "line",
    ["dlq redrive --all --rate nan", "dlq redrive --all --rate inf", "dlq redrive --all --rate 1e-12",
     "key create k --scope reader --days nan", "key create k --scope reader --days 1e300",
     "types retry t --base-seconds inf", "org create acme --rate nan", "datasets query 'SELECT 1' --seconds nan",
     "user create ''", f"user create {'s' * 501}", "user create ada --email ''", f"user set ada --email {'e' * 201}",
     "key create '' --scope reader", f"role create ra --name {'n' * 201}", "org create acme --name ''",
     "dlq discard --all 381405937744023552", "dlq discard --all --type t", "dlq discard 1_005", "user create b\udcffd"],
)  # fmt: skip
def test_invalid_options_are_refused_before_connecting(line: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr("aaiclick.cli.database.open_connection", None)
    monkeypatch.setattr("aaiclick.cli.local_and_remote_operations.open_connection", None)
    assert run_command(shlex.split(line)) == 2
    assert "bug" not in capsys.readouterr().err


def test_float_options_reject_nan_and_inf() -> None:
    ranges = [
        (line, parameter.name)
        for line, command in ALL.items()
        for parameter in command.params
        if isinstance(parameter.type, click.FloatRange) and not isinstance(parameter.type, Number)
    ]
    assert ranges == []


def test_parse_key_prefix() -> None:
    secret = f"aai_{'p' * 12}_{'s' * 43}"
    assert {parse_key_prefix(text) for text in (secret, secret[:-1], "aai_" + "p" * 12, "p" * 12)} == {"p" * 12}


@pytest.mark.parametrize(
    ("status", "age", "shown"), [("ACTIVE", 0, "ACTIVE"), ("ACTIVE", 1, "SILENT"), ("STOPPED", 1, "STOPPED")]
)
def test_worker_without_heartbeat_is_listed_as_silent(status, age, shown):
    now = datetime.now(UTC)
    worker = Worker(
        **dict.fromkeys(("drain_requested_at", "stopped_at", "version")),
        id=1, status=status, shared=True, queues=[], pool_size=1, is_leader=False, started_at=now,
        last_heartbeat=now - timedelta(days=age),
    )  # fmt: skip
    assert _worker_row(worker)["status"] == shown


@pytest.mark.parametrize(
    ("status", "completed_after", "seconds"), [("COMPLETED", 2, 2.0), ("FAILED", None, None), ("PENDING", None, None)]
)
def test_task_that_waits_for_its_next_attempt_has_no_duration(
    status: str, completed_after: int | None, seconds: float | None
) -> None:
    started = datetime(2026, 1, 1, tzinfo=UTC)
    completed = None if completed_after is None else started + timedelta(seconds=completed_after)
    task = Task.model_construct(status=status, started_at=started, completed_at=completed)
    assert task_json(task)["took_seconds"] == seconds
