"""Jobs from authoring to result, run by `run_job_test`."""

import asyncio
from pathlib import Path

import pytest

from aaiclick.data import DataContext, Object, create_object_from_value, open_reference
from aaiclick.errors import NotFoundError
from aaiclick.orchestration import (
    Group,
    JobStatus,
    OrchContext,
    PermanentError,
    create_job,
    create_task,
    get_current_context,
    get_job,
    get_task,
    job,
    retry_failed_tasks,
    run_job_test,
    task,
)
from aaiclick.orchestration.worker.inline_runner import run_until_job_ends

ran: list[str] = []


@pytest.fixture(autouse=True)
def _empty(aaiclick_env):
    ran.clear()


async def note(word: str) -> None:
    ran.append(word)


def note_sync(word: str) -> None:
    ran.append(word)


@task
async def numbers(count: int) -> Object:
    return await create_object_from_value(list(range(count)))


@task
async def double(values: Object) -> Object:
    return values * 2


@task
async def total(left: Object, right: Object) -> int:
    return await left.sum() + await right.sum()


@job
def sums(count: int) -> None:
    values = numbers(count)
    total(double(values), values)


@task(retries=0)
async def broken() -> None:
    raise PermanentError("It will never work.", remedy="Do not ask.")


async def test_the_simplest_job():
    job = await create_job("one", create_task(note, {"word": "hello"}))
    done = run_job_test(job)
    assert done.status is JobStatus.COMPLETED
    assert ran == ["hello"]


def test_run_job_test_works_in_synchronous_code():
    job = asyncio.run(create_job("one", create_task(note_sync, {"word": "hello"})))
    assert run_job_test(job).status is JobStatus.COMPLETED
    assert ran == ["hello"]


async def test_run_of_an_unknown_job_is_refused():
    async with OrchContext():
        with pytest.raises(NotFoundError, match="There is no job 7 in the database"):
            await run_until_job_ends(7)


async def test_dependencies_define_the_order():
    a, b, c, d = (create_task(note, {"word": word}) for word in "abcd")
    a >> [b, c] >> d
    done = run_job_test(await create_job("diamond", d))
    assert done.status is JobStatus.COMPLETED
    assert ran[0] == "a"
    assert set(ran[1:3]) == {"b", "c"}
    assert ran[3] == "d"


async def test_groups_have_predecessors_and_dependents():
    first = create_task(note, {"word": "first"})
    group = Group("middle")
    members = [create_task(note, {"word": f"member {n}"}, group=group) for n in range(5)]
    last = create_task(note, {"word": "last"})
    first >> group >> last
    done = run_job_test(await create_job("barrier", [first, group, *members, last]))
    assert done.status is JobStatus.COMPLETED
    assert ran[0] == "first"
    assert ran[-1] == "last"
    assert len(ran) == 7


async def test_results_are_passed_as_arguments(aaiclick_clickhouse):
    job = await sums(10)
    done = run_job_test(job)
    assert done.status is JobStatus.COMPLETED
    async with OrchContext() as context, context.connection() as connection:
        rows = await connection.fetch("SELECT id, entrypoint FROM tasks WHERE job_id = $1", job.id)
    last = next(row["id"] for row in rows if row["entrypoint"].endswith("total"))
    result = (await get_task(last)).result
    async with DataContext(aaiclick_clickhouse):
        assert await (await open_reference(result)).data() == 90 + 45


async def test_permanent_failure_fails_the_job_and_cancels_dependents():
    bad = broken.task()
    after = create_task(note, {"word": "after"})
    beside = create_task(note, {"word": "beside"})
    bad >> after
    done = run_job_test(await create_job("broken", [bad, after, beside]))
    assert done.status is JobStatus.FAILED
    assert ran == ["beside"]
    assert (await get_task(bad.id)).status == "FAILED"
    cancelled = await get_task(after.id)
    assert cancelled.status == "CANCELLED"


async def flaky() -> None:
    ran.append("try")
    if len(ran) < 3:
        raise RuntimeError("not yet")


async def test_transient_failure_is_retried():
    job = await create_job("flaky", create_task(flaky, retry_policy={"base_seconds": 0.01}))
    assert run_job_test(job).status is JobStatus.COMPLETED
    assert ran == ["try"] * 3


async def test_a_failed_job_can_be_retried():
    job = await create_job("flaky", create_task(flaky, max_attempts=1))
    assert run_job_test(job).status is JobStatus.FAILED
    ran.append("mended")
    await retry_failed_tasks(job.id)
    assert run_job_test(job).status is JobStatus.COMPLETED
    assert (await get_job(job.id)).status is JobStatus.COMPLETED


async def grow() -> None:
    context = get_current_context()
    await context.apply([create_task(note, {"word": f"grown {n}"}) for n in range(3)])


async def test_a_running_task_adds_to_its_job():
    done = run_job_test(await create_job("growing", create_task(grow)))
    assert done.status is JobStatus.COMPLETED
    assert sorted(ran) == ["grown 0", "grown 1", "grown 2"]


async def say(word: str) -> None:
    print(word)


def test_log_of_run_job_test_is_at_log_path():
    async def run() -> str | None:
        async with OrchContext():
            spoken = create_task(say, {"word": "hello"})
            run_job_test(await create_job("spoken", spoken))
            return (await get_task(spoken.id)).log_path

    log_path = asyncio.run(run())
    assert log_path is not None
    assert Path(log_path).read_text().endswith("hello\n")


@task(critical=False)
async def enrich(word: str) -> str:
    raise PermanentError(f"no entry for {word}")


@task
async def report(word: str, extra: str | None) -> None:
    ran.append(f"{word} {extra}")


@job
def optional_step() -> None:
    report("berlin", enrich("berlin"))


@pytest.mark.parametrize("declared", ["decorator", "options", "factory"])
async def test_dependents_get_none_for_a_failed_task_that_is_not_critical(declared: str) -> None:
    async with OrchContext():
        if declared == "decorator":
            submitted = await optional_step()
        else:
            if declared == "options":
                failing = enrich.options(critical=True).options(critical=False)("berlin")
            else:
                failing = create_task(enrich.function, {"word": "berlin"}, critical=False)
            submitted = await create_job("optional", report.task("berlin", failing))
        await asyncio.to_thread(run_job_test, submitted)
        assert (await get_job(submitted.id)).status == JobStatus.COMPLETED
    assert ran == ["berlin None"]
