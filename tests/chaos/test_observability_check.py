"""Checks of metrics, health and logs in a chaos run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from aaiclick.chaos import history
from aaiclick.chaos.observability_check import ApiMonitor, find_missing_lines, parse_counters

METRICS = """# TYPE jobs_failed_total counter
jobs_failed_total{org="a"} %d
# TYPE task_queue_depth gauge
task_queue_depth 3
# TYPE http_requests_total counter
http_requests_total 9
"""


@pytest.fixture
async def served() -> Iterator[tuple[str, dict[str, tuple[int, str]]]]:
    """A server with responses that the test sets."""
    answers = {"/health": (200, "{}"), "/metrics": (200, METRICS % 1)}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readline()).split()[1].decode()
        while (await reader.readline()).strip():
            pass
        status, body = answers[path]
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", answers
    server.close()
    await server.wait_closed()


def test_only_counters_of_jobs_and_tasks_are_compared() -> None:
    assert parse_counters(METRICS % 5) == {("jobs_failed_total", (("org", "a"),)): 5.0}


async def test_decreasing_counter_is_found(served) -> None:
    url, answers = served
    monitor = ApiMonitor(url, "key")
    assert await monitor.check_once()
    answers["/metrics"] = (200, METRICS % 2)
    await monitor.check_once()
    assert monitor.findings == []
    answers["/metrics"] = (200, METRICS % 0)
    await monitor.check_once()
    await monitor.close()
    assert monitor.findings == ["the counter jobs_failed_total {'org': 'a'} fell from 2 to 0"]


@pytest.mark.parametrize(("status", "is_finding"), [(200, False), (503, False), (500, True), (404, True)])
async def test_health_answers_200_or_503(served, status, is_finding) -> None:
    url, answers = served
    answers["/health"] = (status, "{}")
    monitor = ApiMonitor(url, "key")
    assert await monitor.check_once() == (status == 200)
    await monitor.close()
    assert bool(monitor.findings) == is_finding


async def test_unreachable_server_is_no_finding() -> None:
    monitor = ApiMonitor("http://127.0.0.1:1", "key")
    assert not await monitor.check_once()
    await monitor.close()
    assert monitor.findings == []


def test_missing_log_line_is_found(tmp_path) -> None:
    log, spool = tmp_path / "7.log", tmp_path / "8-1.log"
    log.write_text("=== attempt 1 ===\nbegun in attempt 1\n")
    for task, line, path in ((7, "begun in attempt 1", log), (7, "ending in attempt 1", log), (8, "begun", spool)):
        history.record_event(tmp_path, history.PRINTED_LINES, task=task, attempt=1, line=line, path=str(path))
    assert find_missing_lines(tmp_path) == ["the log of task 7 lacks 'ending in attempt 1'"]
    assert json.loads((tmp_path / history.PRINTED_LINES).read_text().splitlines()[0])["task"] == 7
