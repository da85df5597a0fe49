"""Dependencies, groups and failures: order of tasks, and the final status of the job."""

from __future__ import annotations

import pytest

from aaiclick.errors import CycleError, LeaseLost, SubmitError
from tests.integration.engine.conftest import Engine


@pytest.mark.parametrize(
    ("tasks", "groups", "edges", "rounds"),
    [
        ("a", "", "", ["a"]),
        ("a b c", "", "a>b b>c", ["a", "b", "c"]),
        ("a b c d", "", "a>b a>c b>d c>d", ["a", "b c", "d"]),
        ("a b:g c:g d", "g", "a>g g>d", ["a", "b c", "d"]),
        ("a:g b:g", "g", "a>b", ["a", "b"]),
        ("a:g b:h c:i", "g h i", "g>h h>i", ["a", "b", "c"]),
        ("a b", "g", "a>g g>b", ["a", "b"]),
        ("a b", "g", "g>b", ["a b"]),
        ("a b", "g h i", "a>g g>h h>i i>b", ["a", "b"]),
        ("a b:h c", "g h:g", "a>g g>c", ["a", "b", "c"]),
        ("a b:h c:g d", "g h:g i:h", "a>g h>c g>d", ["a", "b", "c", "d"]),
        ("a b:g c:g d e", "g", "a>g d>b g>e", ["a d", "b c", "e"]),
        ("a b:g d e", "g", "a>g d>b a>d g>e", ["a", "d", "b", "e"]),
        ("a b:i c", "g h:g i:h", "a>g i>c", ["a", "b", "c"]),
    ],
)
async def test_a_job_runs_in_order(engine: Engine, tasks: str, groups: str, edges: str, rounds: list[str]) -> None:
    await engine.submit(tasks, groups, edges)
    await engine.check()
    runs = []
    while claims := await engine.claim():
        runs.append(" ".join(sorted(claim.type for claim in claims)))
        await engine.check()
        for claim in claims:
            assert await engine.complete(claim) == {claim.lease.task_id}
            await engine.check()
    assert runs == rounds
    assert await engine.status("job") == "COMPLETED"


@pytest.mark.parametrize(
    ("tasks", "groups", "edges", "expected"),
    [
        ("a b", "", "a>b b>a", "a → b → a"),
        ("a b c", "", "a>b b>c c>a", "→"),
        ("a:g", "g", "g>a", "g → a → g"),
        ("a:g b", "g", "a>b b>g", "→"),
        ("a:h b", "g h:g", "g>b b>a", "→"),
        ("a:g", "g", "a>g", "→"),
        ("a:g b:h", "g h", "g>h h>g", "→"),
        ("a", "g h", "g>h h>g", "→"),
    ],
)
async def test_cycle_is_refused_with_path(engine: Engine, tasks: str, groups: str, edges: str, expected: str) -> None:
    with pytest.raises(CycleError, match="form a cycle") as caught:
        await engine.submit(tasks, groups, edges)
    message = caught.value.what
    assert expected in message or sorted(expected.split(" → ")[:-1]) == sorted(
        set(message.split(": ")[1].strip(".").split(" → "))
    )
    assert await engine.db.fetchval("SELECT count(*) FROM jobs") == 0


async def test_a_job_without_tasks_is_complete(engine: Engine) -> None:
    await engine.submit("", "g")
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


@pytest.mark.parametrize(
    ("tasks", "groups", "edges", "cancelled", "still_runs"),
    [
        ("x b c", "", "x>b b>c", "b c", ""),
        ("x b c", "", "x>b", "b", "c"),
        ("x:g b:g c", "g", "g>c", "c", "b"),
        ("x b:g c", "g", "x>g g>c", "b c", ""),
        ("x b:h c:g d", "g h:g", "x>h g>d", "b d", "c"),
        ("x b:h c:g d", "g h:g", "x>g g>d", "b c d", ""),
        ("x:h b:g c d", "g h:g", "g>c c>d", "c d", "b"),
        ("x b c d", "", "x>b x>c b>d c>d", "b c d", ""),
    ],
)
async def test_downstream_tasks_are_cancelled_with_cause(
    engine: Engine, tasks: str, groups: str, edges: str, cancelled: str, still_runs: str
) -> None:
    await engine.submit(tasks, groups, edges)
    claims = await engine.claim()
    await engine.fail(*[claim for claim in claims if claim.type == "x"], permanent=True)
    await engine.check()
    rows = await engine.db.fetch("SELECT type FROM tasks WHERE cause_id = $1 ORDER BY id", engine.id("x"))
    assert [row["type"] for row in rows] == cancelled.split()
    await engine.complete(*[claim for claim in claims if claim.type != "x"])
    ran = " ".join(await engine.run())
    assert ran in ("", still_runs)
    assert await engine.status("x", "job") == "FAILED FAILED"
    await engine.check()


async def test_tasks_are_added_to_a_running_job(engine: Engine) -> None:
    await engine.submit("a b:g", "g h", "a>g")
    (first,) = await engine.claim()
    await engine.add("job", "c:g d e", "", "a>d g>e", first.lease)
    await engine.check()
    await engine.complete(first)
    assert await engine.run() == ["b c d", "e"]
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_lost_lease_cannot_add_tasks(engine: Engine) -> None:
    await engine.submit("a")
    (first,) = await engine.claim()
    await engine.fail(first)
    with pytest.raises(LeaseLost, match="nothing was added"):
        await engine.add("job", "b", lease=first.lease)
    assert await engine.db.fetchval("SELECT count(*) FROM tasks") == 1


@pytest.mark.parametrize(
    ("tasks", "groups", "edges", "expected"),
    [
        ("n:g", "", "", "has completed"),
        ("n", "", "x>n", "is FAILED"),
        ("n", "", "k>n", "can no longer complete"),
        ("n", "", "nobody>n", "not part of this job"),
        ("n", "", "n>z", "cannot get more dependencies"),
        ("n:nowhere", "", "", "not part of this job"),
    ],
)
async def test_unrunnable_additions_are_rejected(
    engine: Engine, tasks: str, groups: str, edges: str, expected: str
) -> None:
    await engine.submit("x:k a:g z", "g k", "")
    claims = {claim.type: claim for claim in await engine.claim()}
    await engine.complete(claims["a"])
    await engine.fail(claims["x"], permanent=True)
    with pytest.raises(SubmitError, match=expected):
        await engine.add("job", tasks, groups, edges)
    await engine.check()


async def test_nothing_is_added_to_a_finished_job(engine: Engine) -> None:
    await engine.submit("a")
    await engine.run()
    with pytest.raises(SubmitError, match="is finished"):
        await engine.add("job", "b")


async def test_cycle_through_existing_tasks_is_refused(engine: Engine) -> None:
    await engine.submit("a:g b", "g", "g>b")
    with pytest.raises(CycleError):
        await engine.add("job", "c:g", "", "b>c")


async def test_a_barrier_of_two_thousand(engine: Engine) -> None:
    members = " ".join(f"t{n}:g" for n in range(2_000))
    await engine.submit(f"first {members} last", "g", "first>g g>last")
    (first,) = await engine.claim()
    await engine.complete(first)
    ran = 0
    while (claims := await engine.claim(500)) and claims[0].type != "last":
        ran += len(claims)
        await engine.complete(*claims)
    assert ran == 2_000
    await engine.complete(*claims)
    assert await engine.status("job") == "COMPLETED"
    await engine.check()
