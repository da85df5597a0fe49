"""Claim order: priorities, jobs, orgs, limits, keys, pauses."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from aaiclick.snowflake import get_snowflake_ids
from aaiclick.store.engine import user_actions
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.explain_task import explain_task
from aaiclick.store.engine.leases_and_outcomes import Claim
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.statements import statement
from aaiclick.store.task_options import TaskOptions
from tests.integration.engine.conftest import Engine


async def put(engine: Engine, count: int, org_id: UUID = DEFAULT_ORG_ID, type_: str = "x", **options: object) -> None:
    tasks = [NewTask(key, type_, options=TaskOptions(**options)) for key in get_snowflake_ids(count)]  # pyright: ignore[reportArgumentType]
    await enqueue_tasks(engine.db, tasks, org_id)


async def org(engine: Engine, **settings: object) -> UUID:
    key = uuid4()
    await engine.db.execute("INSERT INTO orgs (id, name, slug) VALUES ($1, $2, $2)", key, f"o{key.hex}")
    for name, value in settings.items():
        await engine.db.execute(f"UPDATE orgs SET {name} = $2 WHERE id = $1", key, value)
    return key


def by_org(claims: list[Claim]) -> Counter[UUID]:
    return Counter(claim.org_id for claim in claims)


async def test_priority_then_the_oldest_job_then_the_oldest_task(engine: Engine) -> None:
    await engine.submit("a b", job="old")
    await engine.submit("c d", job="young")
    await engine.submit("e", job="urgent", priority=5)
    await put(engine, 1, type_="lone")
    assert [claim.type for claim in await engine.claim()] == ["e", "a", "b", "c", "d", "lone"]


async def test_single_claims_keep_order(engine: Engine) -> None:
    await engine.submit("a b", job="old")
    await engine.submit("c", job="young", priority=1)
    assert [(await engine.claim(1))[0].type for _ in range(3)] == ["c", "a", "b"]


async def test_priority_decides_across_the_queues_of_one_org(engine: Engine) -> None:
    for name in ("a", "b", "c"):
        await put(engine, 30, type_=f"{name} low", queue=name)
    await put(engine, 8, type_="b high", queue="b", priority=3)
    await put(engine, 2, type_="c higher", queue="c", priority=4)
    assert [claim.type for claim in await engine.claim(1)] == ["c higher"]
    assert Counter(claim.type for claim in await engine.claim(9)) == {"c higher": 1, "b high": 8}
    assert {claim.priority for claim in await engine.claim(30)} == {0}


async def test_priority_of_one_org_takes_nothing_from_another(engine: Engine) -> None:
    other = await org(engine)
    for name in ("a", "b"):
        await put(engine, 200, queue=name, priority=9)
        await put(engine, 200, other, queue=name)
    assert by_org(await engine.claim(100)) == pytest.approx({DEFAULT_ORG_ID: 50, other: 50}, abs=3)


async def test_a_due_retry_of_higher_priority_comes_first(engine: Engine) -> None:
    await put(engine, 1, type_="urgent", priority=5)
    await engine.fail(*await engine.claim(1))
    await put(engine, 2, type_="plain")
    assert [claim.type for claim in await engine.claim(3)] == ["urgent", "plain", "plain"]


async def test_tasks_of_other_runtimes_do_not_slow_claims(engine: Engine) -> None:
    """The fast claim statement is used; a row without an id would request the slow one."""

    async def short(*queues: str) -> list[str | None]:
        rows = await engine.db.fetch(
            statement("claim_tasks"), engine.worker_id, 2, list(queues), 60.0, uuid4(), None, False
        )
        return [row["id"] and row["type"] for row in rows]

    await put(engine, 6, type_="here")
    await put(engine, 2, type_="there", queue="runtime:lambda")
    assert await short() == ["here", "here"]
    assert await short("default") == ["here", "here"]
    assert await short("default", "runtime:lambda") == [None]
    await put(engine, 1, type_="also", queue="special")
    assert await short() == [None]
    assert Counter(claim.type for claim in await engine.claim()) == {"here": 2, "also": 1}


async def test_two_workers_share_one_job(engine: Engine, second: Engine) -> None:
    await engine.submit("a b c d")
    transaction = engine.db.transaction()
    await transaction.start()
    mine = await engine.claim(2)
    second_claims = await second.claim(4)
    await transaction.commit()
    assert [claim.type for claim in (*mine, *second_claims)] == ["a", "b", "c", "d"]


async def test_the_first_claim_starts_the_job(engine: Engine) -> None:
    await engine.submit("a b")
    assert await engine.status("job") == "PENDING"
    await engine.claim(1)
    started = await engine.db.fetchrow("SELECT status::text, started_at FROM jobs")
    await engine.claim(1)
    assert await engine.db.fetchrow("SELECT status::text, started_at FROM jobs") == started
    assert started["status"] == "RUNNING"


async def test_claim_takes_only_given_queues(engine: Engine) -> None:
    await put(engine, 2, queue="a", type_="a")
    await put(engine, 2, queue="b", type_="b")
    assert {claim.type for claim in await engine.claim(10, ["b"])} == {"b"}
    assert await engine.claim(10, ["c"]) == []
    assert {claim.type for claim in await engine.claim(10)} == {"a"}


async def test_an_org_with_many_tasks_does_not_starve_another(engine: Engine) -> None:
    few = await org(engine)
    await put(engine, 5_000)
    await put(engine, 10, few)
    started = 0
    for _ in range(20):
        started += by_org(await engine.claim(10))[few]
        if started == 10:
            break
    assert started == 10


async def test_orgs_share_by_weight(engine: Engine) -> None:
    heavy, light = await org(engine, weight=3), await org(engine, weight=1)
    await put(engine, 900, heavy)
    await put(engine, 900, light)
    shares = by_org(await engine.claim(100))
    assert shares[light] in (24, 25, 26)
    assert sum(shares.values()) == 100
    one_by_one: Counter[UUID] = Counter()
    for _ in range(800):
        one_by_one.update(by_org(await engine.claim(1)))
    assert 140 <= one_by_one[light] <= 260  # a quarter is 200; outside these bounds once in 10^6 runs


async def test_unused_org_share_goes_to_other_orgs(engine: Engine) -> None:
    small = await org(engine)
    await put(engine, 200)
    await put(engine, 3, small)
    assert by_org(await engine.claim(100)) == {DEFAULT_ORG_ID: 97, small: 3}


async def test_very_many_orgs_are_all_served(engine: Engine) -> None:
    orgs = [await org(engine) for _ in range(150)]
    for key in orgs:
        await put(engine, 1, key)
    served: Counter[UUID] = Counter()
    for _ in range(100):
        served.update(by_org(await engine.claim(20)))
        if len(served) == 150:
            break
    assert len(served) == 150


@pytest.mark.parametrize("level", ["org", "queue"])
async def test_limit_of_running_tasks(engine: Engine, second: Engine, level: str) -> None:
    limited = await org(engine, **({"max_running": 3} if level == "org" else {}))
    if level == "queue":
        await engine.db.execute("INSERT INTO queues (org_id, name, max_running) VALUES ($1, 'default', 3)", limited)
    await put(engine, 10, limited)
    first = await engine.claim()
    assert len(first) == 3
    assert await second.claim() == []
    await engine.complete(first[0])
    assert len(await second.claim()) == 1


async def test_claims_under_one_limit_do_not_overlap(engine: Engine, second: Engine) -> None:
    limited = await org(engine, max_running=3)
    await put(engine, 10, limited)
    transaction = engine.db.transaction()
    await transaction.start()
    mine = await engine.claim(2)
    second_claims = await second.claim(10)  # does not block, and claims nothing beyond the limit
    await transaction.commit()
    assert (len(mine), len(second_claims)) == (2, 0)
    assert len(await second.claim(10)) == 1


async def test_rate_limits_starts_per_second(engine: Engine) -> None:
    limited = await org(engine, rate_per_second=2.0, rate_burst=4)
    await put(engine, 20, limited)
    started = []
    for seconds in (0, 0, 1, 1, 5):
        engine.shift = timedelta(seconds=seconds, microseconds=1)
        started.append(len(await engine.claim()))
    assert started == [4, 0, 2, 0, 4]


async def test_a_clock_set_back_does_not_stop_a_rate(engine: Engine) -> None:
    limited = await org(engine, rate_per_second=2.0, rate_burst=4)
    await put(engine, 20, limited)
    started = []
    for hours, seconds in ((0, 0), (-1, 0), (-1, 0), (-1, 1)):
        engine.shift = timedelta(hours=hours, seconds=seconds, microseconds=1)
        started.append(len(await engine.claim()))
    assert started == [4, 4, 0, 2]


@pytest.mark.parametrize("of", ["org", "queue"])
@pytest.mark.parametrize(
    ("limit", "value", "code"), [("rate_per_second", 0.001, "rate"), ("max_running", 1, "limited")]
)
async def test_limit_is_reported_only_while_exhausted(
    engine: Engine, of: str, limit: str, value: float, code: str
) -> None:
    limited = await org(engine, **({limit: value} if of == "org" else {}))
    if of == "queue":
        await engine.db.execute(
            f"INSERT INTO queues (org_id, name, {limit}) VALUES ($1, 'default', $2)", limited, value
        )
    await put(engine, 2, limited)
    last = await engine.db.fetchval("SELECT max(id) FROM tasks")
    assert [reason.code for reason in await explain_task(engine.db, last)] == ["ready"]
    assert len(await engine.claim()) == 1
    assert [reason.code for reason in await explain_task(engine.db, last)] == [code]
    await engine.db.execute("UPDATE workers SET last_heartbeat = now() - interval '1 h'")
    assert [reason.code for reason in await explain_task(engine.db, last)] == [code, "no_worker"]


async def test_concurrency_key_runs_one_task_at_a_time_in_order(engine: Engine, second: Engine) -> None:
    await put(engine, 3, type_="keyed", concurrency_key="k")
    await put(engine, 1, type_="other")
    claims = await engine.claim()
    assert sorted(claim.type for claim in claims) == ["keyed", "other"]
    assert await second.claim() == []
    await engine.complete(*claims)
    (claim,) = await second.claim()
    await second.fail(claim, delay=60)
    assert [claim.type for claim in await engine.claim()] == ["keyed"]
    await engine.check()


async def test_concurrency_key_with_limit_two(engine: Engine) -> None:
    await put(engine, 5, concurrency_key="k", concurrency_limit=2)
    claims = await engine.claim()
    assert len(claims) == 2
    await engine.complete(claims[0])
    assert len(await engine.claim()) == 1


@pytest.mark.parametrize("what", ["queue", "org", "type", "job"])
async def test_paused_work_starts_after_resume(engine: Engine, what: str) -> None:
    await engine.submit("a b", job="paused")
    other = await org(engine)
    await put(engine, 2, other, type_="other", queue="other")
    name = {"queue": "default", "org": DEFAULT_ORG_ID, "type": "a", "job": engine.id("paused")}[what]
    await getattr(user_actions, f"pause_{what}")(engine.db, name)
    claimed = sorted(claim.type for claim in await engine.claim())
    assert claimed == (["b", "other", "other"] if what == "type" else ["other", "other"])
    await engine.check()
    await getattr(user_actions, f"resume_{what}")(engine.db, name)
    assert sorted(claim.type for claim in await engine.claim()) == (["a"] if what == "type" else ["a", "b"])
    await engine.check()


async def test_paused_tasks_do_not_hide_claimable_tasks(engine: Engine) -> None:
    await put(engine, 500, type_="paused")
    await put(engine, 3, type_="x")
    await user_actions.pause_type(engine.db, "paused")
    assert [claim.type for claim in await engine.claim(10)] == ["x", "x", "x"]
    assert await user_actions.resume_type(engine.db, "paused") == 500
    assert len(await engine.claim(1000)) == 500
