"""Final tasks of groups in Python."""

from __future__ import annotations

from datetime import date

import pytest

from aaiclick.errors import SubmitError
from aaiclick.orchestration import Group, PermanentError, TaskFailure, create_job, job, run_job_test, task

calls: list[str] = []


@task
def call(name: str) -> None:
    calls.append(name)
    if name == "broken":
        raise PermanentError("It is broken.", remedy="")


@task
def alert(failure: TaskFailure, day: date) -> None:
    calls.append(f"alert {day:%d.%m.}")


@task
def release(day: date) -> None:
    calls.append(f"release {day:%d.%m.}")


@job(finally_=release, on_failure=alert)
def nightly(day: date) -> None:
    call("broken")


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


async def test_handlers_of_a_job_receive_its_date() -> None:
    assert run_job_test(await nightly(date(2026, 1, 31))).status == "FAILED"
    assert calls == ["broken", "alert 31.01.", "release 31.01."]


async def test_handler_without_the_annotation_of_an_argument_is_refused() -> None:
    def forget(day) -> None: ...

    with pytest.raises(SubmitError, match="'day' is of type date, and the parameter is not annotated"):
        await job(finally_=forget)(nightly.function)(date(2026, 1, 31))


def test_handlers_of_a_call_with_wrong_arguments_are_made() -> None:
    failure = TaskFailure(1, "nightly", "FAILED", 1, "no date")
    tasks = nightly.make_handlers_of_failed_call({"day": "soon"}, failure)
    assert [task.kwargs["day"] for task in tasks] == ["soon", "soon"]
    tasks = nightly.make_handlers_of_failed_call({"day": "2026-01-31"}, failure)
    assert [task.kwargs["day"] for task in tasks] == ["2026-01-31"] * 2
