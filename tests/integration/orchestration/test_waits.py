"""Tasks that wait for a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from aaiclick.errors import SubmitError
from aaiclick.orchestration import create_job, run_job_test, task, until

started: list[datetime] = []


@task
def record_start() -> None:
    started.append(datetime.now(UTC))


@pytest.fixture(autouse=True)
def _clear(aaiclick_env, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path))
    started.clear()


async def test_until_completes_at_its_time() -> None:
    moment = datetime.now(UTC) + timedelta(seconds=0.5)
    past = until(moment - timedelta(days=1))
    assert run_job_test(await create_job("later", [past, until(moment) >> record_start.task()])).status == "COMPLETED"
    assert [time >= moment for time in started] == [True]


def test_until_without_a_time_zone_is_refused() -> None:
    with pytest.raises(SubmitError, match="has no time zone"):
        until(datetime(2030, 12, 24))  # noqa: DTZ001
