"""Final tasks of groups in Python."""

from __future__ import annotations

import pytest

from aaiclick.orchestration import Group, PermanentError, create_job, run_job_test, task

calls: list[str] = []


@task
def call(name: str) -> None:
    calls.append(name)
    if name == "broken":
        raise PermanentError("It is broken.", remedy="")


@pytest.fixture(autouse=True)
def _clear(aaiclick_env, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path))
    calls.clear()


@pytest.mark.parametrize("last", ["works", "broken"])
async def test_final_task_of_a_group_runs_when_its_members_have_ended(last) -> None:
    first, second = call.task("first"), call.task(last)
    step = Group("step", [first >> second], finally_=call.task("release"))
    ended = run_job_test(await create_job("job", step >> call.task("after")))
    assert calls[:2] == ["first", last]
    if last == "broken":
        assert (ended.status, calls[2:]) == ("FAILED", ["release"])
    else:
        assert (ended.status, sorted(calls[2:])) == ("COMPLETED", ["after", "release"])
