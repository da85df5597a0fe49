"""Tasks that wait for a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from aaiclick.errors import SubmitError
from aaiclick.orchestration import TaskFailure, create_job, run_job_test, sensor, task, until

started: list[datetime] = []
alerts: list[str] = []


@task
def alert(failure: TaskFailure) -> None:
    alerts.append(failure.error)


@sensor(poll_seconds=0.05, wait_seconds=0.2, on_failure=alert)
def never() -> bool:
    return False


@task
def record_start() -> None:
    started.append(datetime.now(UTC))


@pytest.fixture(autouse=True)
def _clear(aaiclick_env, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path))
    started.clear()
    alerts.clear()


async def test_until_completes_at_its_time() -> None:
    moment = datetime.now(UTC) + timedelta(seconds=0.5)
    past = until(moment - timedelta(days=1))
    assert run_job_test(await create_job("later", [past, until(moment) >> record_start.task()])).status == "COMPLETED"
    assert [time >= moment for time in started] == [True]


def test_until_without_a_time_zone_is_refused() -> None:
    with pytest.raises(SubmitError, match="has no time zone"):
        until(datetime(2030, 12, 24))  # noqa: DTZ001


async def test_failure_handler_runs_after_a_sensor_that_waited_too_long() -> None:
    assert run_job_test(await create_job("sensor", never.task())).status == "FAILED"
    assert alerts == ["It has not ended within 0.2 s."]


def test_unknown_option_of_a_sensor_is_refused() -> None:
    with pytest.raises(SubmitError, match="@sensor has no option 'poll'"):
        sensor(poll_seconds=1, poll=2)  # pyright: ignore[reportCallIssue]
