"""Compensation: completed steps of a failed job are undone in the reverse order of their completion."""

from __future__ import annotations

import pytest

from aaiclick.errors import SubmitError
from aaiclick.orchestration import (
    OrchContext,
    PermanentError,
    create_job,
    get_job,
    job,
    retry_failed_tasks,
    run_job_test,
    task,
)
from aaiclick.orchestration.compensation import describe_compensation
from aaiclick.store.engine import user_actions

calls: list[str] = []
broken: set[str] = set()


@task(retries=1)
def undo(name: str, result: str) -> None:
    calls.append(f"undo {result}")
    if "undo once" in broken:
        broken.discard("undo once")
        raise OSError("try again")
    if f"undo {result}" in broken:
        raise PermanentError(result, remedy="")


@task(compensate=undo)
def step(name: str, after: object = None) -> str:
    calls.append(name)
    if name in broken:
        raise PermanentError(name, remedy="")
    return name.upper()


@task(critical=False, retries=0)
def optional() -> None:
    raise OSError("no connection")


@task(retries=0)
def clean_up() -> None:
    calls.append("clean up")
    if "clean up" in broken:
        raise OSError("no connection")


@job(finally_=clean_up)
def chain() -> None:
    step("c", step("b", step("a")))


@pytest.fixture(autouse=True)
def _clear(aaiclick_env, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path))
    calls.clear()
    broken.clear()


async def test_completed_steps_are_undone_newest_first_then_finally_runs() -> None:
    broken.update({"c", "undo once"})
    assert run_job_test(await chain()).status == "FAILED"
    assert calls == ["a", "b", "c", "undo B", "undo B", "undo A", "clean up"]


@task
def clean_up_cluster(cluster: str) -> None:
    calls.append(f"deleted {cluster}")


@job(finally_=clean_up_cluster)
def with_default(cluster: str = "c1") -> None:
    step("a")


async def test_handler_receives_default_arguments_of_the_job() -> None:
    assert run_job_test(await with_default()).status == "COMPLETED"
    assert calls == ["a", "deleted c1"]


async def test_successful_job_undoes_nothing() -> None:
    assert run_job_test(await chain()).status == "COMPLETED"
    assert calls == ["a", "b", "c", "clean up"]


async def test_failure_of_an_optional_task_undoes_nothing() -> None:
    finished = run_job_test(await create_job("optional", [step.task("b", optional())]))
    assert (finished.status, calls) == ("COMPLETED", ["b"])


async def test_retry_starts_again_from_the_first_undone_step() -> None:
    broken.add("c")
    failed = run_job_test(await chain())
    calls.clear()
    await retry_failed_tasks(failed.id)
    assert run_job_test(await get_job(failed.id)).status == "FAILED"
    assert calls == ["a", "b", "c", "undo B", "undo A", "clean up"]
    calls.clear()
    broken.clear()
    await retry_failed_tasks(failed.id)
    assert run_job_test(await get_job(failed.id)).status == "COMPLETED"
    assert calls == ["a", "b", "c", "clean up"]


async def restart(change: str, job_id: int, name: str) -> None:
    """Clear or redrive the first task with a name."""
    async with OrchContext() as context, context.connection() as connection:
        query = "SELECT min(id) FROM tasks WHERE job_id = $1 AND (type LIKE '%' || $2 OR kwargs ->> 'name' = $2)"
        task_id = await connection.fetchval(query, job_id, name)
        if change == "clear":
            await user_actions.clear_tasks(connection, task_id)
        else:
            await user_actions.redrive_dead_letters(connection, task_ids=[task_id])


async def test_retry_leaves_steps_that_were_not_undone() -> None:
    """Regression: all completed steps ran again, and the first one twice without its compensation."""
    broken.update({"c", "undo B"})
    failed = run_job_test(await chain())
    assert calls == ["a", "b", "c", "undo B", "clean up"]
    calls.clear()
    broken.clear()
    await retry_failed_tasks(failed.id)
    assert run_job_test(await get_job(failed.id)).status == "COMPLETED"
    assert calls == ["b", "c", "clean up"]


async def test_clear_of_the_failed_task_reruns_undone_steps() -> None:
    """Regression: the job completed without the steps that were undone."""
    broken.add("c")
    failed = run_job_test(await chain())
    calls.clear()
    broken.clear()
    await restart("clear", failed.id, "c")
    assert run_job_test(await get_job(failed.id)).status == "COMPLETED"
    assert calls == ["a", "b", "c", "clean up"]


async def test_redrive_of_the_final_task_reruns_no_step() -> None:
    """Regression: the undone steps ran again, though only the final task was redriven."""
    broken.update({"c", "clean up"})
    failed = run_job_test(await chain())
    calls.clear()
    broken.discard("clean up")
    await restart("redrive", failed.id, "clean_up")
    assert run_job_test(await get_job(failed.id)).status == "FAILED"
    assert calls == ["clean up"]


async def test_parallel_steps_are_undone_in_reverse_order_of_completion() -> None:
    broken.add("z")
    steps = [step.task(name) for name in "abcd"]
    last = step.task("z")
    steps >> last
    submitted = await create_job("parallel", [*steps, last])
    assert run_job_test(submitted).status == "FAILED"
    async with OrchContext() as context, context.connection() as connection:
        # Steps that are acknowledged together have completed at the same time: the one submitted last is undone first.
        completed = await connection.fetch(
            "SELECT kwargs ->> 'name' AS name FROM tasks WHERE job_id = $1 AND status = 'COMPLETED'"
            " AND id = ANY ($2) ORDER BY completed_at, id", submitted.id, [task.id for task in steps],
        )  # fmt: skip
    undone = [call.removeprefix("undo ").lower() for call in calls if call.startswith("undo")]
    assert undone == [row["name"] for row in reversed(completed)]
    assert len(undone) == 4


async def test_steps_are_undone_by_time_of_completion_and_not_of_submission() -> None:
    broken.add("z")
    first, second = step.task("a"), step.task("b")
    third, last = step.task("c"), step.task("z")
    second >> first
    third >> second
    first >> last
    assert run_job_test(await create_job("reversed", [first, second, third, last])).status == "FAILED"
    assert calls == ["c", "b", "a", "z", "undo A", "undo B", "undo C"]


def lacking(other: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "critical", "message"),
    [
        (lacking, True, "has a parameter 'other' without a value"),
        (undo, False, "belongs to a step with critical=False"),
    ],
)
def test_invalid_compensations_are_refused(function, critical, message) -> None:
    with pytest.raises(SubmitError, match=message):
        describe_compensation(step.options(critical=critical).task("a"), function)


def test_cached_step_with_compensation_is_refused() -> None:
    with pytest.raises(SubmitError, match="'cache' and 'compensate'"):
        task(cache="input", compensate=undo)
