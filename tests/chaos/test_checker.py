"""The checker of a chaos run notices what it is there to notice."""

from __future__ import annotations

import json
import re
import time
from functools import partial

import pytest

from aaiclick.chaos import flow, history
from aaiclick.chaos.checker import WATCH, judge
from aaiclick.chaos.load import BODIES
from aaiclick.chaos.run import look
from aaiclick.data.client import connect as connect_clickhouse
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import workers
from aaiclick.store.engine import connect
from aaiclick.store.words import DEFAULT_ORG_ID


class Scene:
    """A database and histories in which one thing after the other is wrong."""

    def __init__(self, db, client, directory, targets) -> None:
        self.db, self._client, self.directory, self._targets = db, client, directory, targets

    async def task(
        self,
        *,
        status="COMPLETED",
        attempt=1,
        key=None,
        seen=True,
        org=DEFAULT_ORG_ID,
        of="plain",
        job=None,
        asked=True,
    ) -> int:
        task_id = get_snowflake_id()
        await self.db.execute(
            "INSERT INTO tasks (id, type, status, attempt, idempotency_key, readiness, completed_at, job_id)"
            " VALUES ($1, $4, 'PENDING', $2, $3, 'READY', NULL, $5)",
            task_id, attempt, key, of if "." in of else f"{BODIES}.{of}", job,
        )  # fmt: skip
        if key is None and asked:
            history.note(self.directory, "clients", meant="tasks", ids=[task_id])
        if status != "PENDING":
            await self.db.execute(
                "UPDATE tasks SET status = $2, readiness = NULL, completed_at = now() WHERE id = $1", task_id, status
            )
        if seen:
            for event in ("begin", "end"):
                history.note_attempt(str(self.directory), event, task_id, attempt, str(org))
        return task_id

    async def lost(self, task_id, attempt=1, seconds_ago=0.0) -> None:
        await self.db.execute(
            "INSERT INTO task_attempts (task_id, attempt, charged, outcome, ended_at)"
            " VALUES ($1, $2, true, 'LOST', now() - $3 * interval '1 second')",
            task_id, attempt, seconds_ago,
        )  # fmt: skip

    def meant(self, key, task_id, status="COMPLETED", org=DEFAULT_ORG_ID):
        history.note(self.directory, "clients", meant="items", org=str(org), keys={key: status})
        history.note(self.directory, "clients", heard="items", ids={key: task_id})

    async def job(self, key="j", *, over=True, tasks=0, total=None, fired=False, **more) -> int:
        """One that a client meant and heard of; with that many tasks more than `total`, if that is given."""
        job_id = get_snowflake_id()
        await self.db.execute(
            "INSERT INTO jobs (id, org_id, name, status, completed_at, total_tasks, trigger)"
            " VALUES ($1, $2, $6, $3::text::job_status, CASE WHEN $4 THEN now() END, $5, $7)",
            job_id, DEFAULT_ORG_ID, "COMPLETED" if over else "PENDING", over, tasks,
            "chaos.sell" if fired else f"chaos {key}", json.dumps({"payload": {"key": key}}) if fired else None,
        )  # fmt: skip
        if not fired:
            total = tasks if total is None else total
            history.note(self.directory, "clients", meant="job", key=key, tasks=[], edges=[], total=total, **more)
            history.note(self.directory, "clients", heard="job", key=key, job=job_id)
        return job_id
        return job_id

    async def table(self, *, held_by=None) -> str:
        """In ClickHouse, and in PostgreSQL as well if it is held by a job; made a second ago."""
        name = f"t{get_snowflake_id() - (1000 << 22)}"
        await self._client.run(f"CREATE TABLE {name} (aai_id UInt64) ENGINE = Memory")
        if held_by is not None:
            await self.db.execute("INSERT INTO table_refcounts (table_name) VALUES ($1)", name)
            await self.db.execute(
                "INSERT INTO table_references (table_name, owner, owner_id, job_id) VALUES ($1, 'JOB', $2, $2)",
                name, held_by,
            )  # fmt: skip
        return name

    async def drop(self, table) -> None:
        await self._client.run(f"DROP TABLE {table} SYNC")

    async def verdict(self):
        return await judge(self.db, self._client, self.directory)

    async def look(self, *, calm=False):
        """As a run does at its end."""
        return await look(*self._targets, self.directory, calm=calm)


@pytest.fixture
async def scene(aaiclick_postgres, aaiclick_clickhouse, tmp_path):
    db = await connect(aaiclick_postgres)
    await db.execute(WATCH)
    targets = aaiclick_postgres, aaiclick_clickhouse
    yield Scene(db, await connect_clickhouse(aaiclick_clickhouse), tmp_path, targets)
    await db.close()


async def test_each_fault_is_noticed(scene):
    scene.meant("good", await scene.task(key="good"))
    scene.meant("bad", await scene.task(key="bad", status="DEAD_LETTER"), "DEAD_LETTER")
    assert (await scene.verdict()).clean

    scene.meant("gone", 12345)
    scene.meant("waits", await scene.task(status="PENDING", key="waits"))
    scene.meant("dead", await scene.task(status="DEAD_LETTER", key="dead"))
    await scene.task(key="nobody's")
    unseen = await scene.task(seen=False)
    scene.meant("foreign", await scene.task(key="foreign"), org="other")
    stranger = await scene.task(org="other")
    twice = await scene.task()
    await scene.db.execute("INSERT INTO chaos.outcomes SELECT * FROM chaos.outcomes WHERE task_id = $1", twice)
    scene.meant("two", await scene.task(key="two"))
    scene.meant("two", 77)
    await scene.db.execute("INSERT INTO chaos.terms VALUES (3, 1), (3, 2)")
    await scene.table()
    found = (await scene.verdict()).faults
    assert [each.split(",")[0] for each in found["lost"]] == ["item gone", "item waits"]
    assert len(found["unexpected"]) == 3
    assert any(f"task {unseen} is completed by attempt 1, which never ended" in each for each in found["unexpected"])
    assert [each.split(" ")[0] for each in found["duplicated"]] == ["I5:"]
    assert found["accepted twice"] == [f"task {twice} was completed 2 times"]
    assert {each[:4] for each in found["violated"]} == {"I10:", "I11:"}
    assert any(f"task {stranger}" in each for each in found["violated"])
    assert len(found["orphans"]) == 1


async def test_work_that_is_lost_is_told_and_keeps_nobody_from_judging(scene):
    await scene.job("over")
    stuck = await scene.job("stuck", over=False)
    verdict, _ = await scene.look()
    assert verdict.lost == [f"job {stuck}: PENDING"]


async def test_a_table_that_was_dropped_too_early_is_noticed_before_all_is_let_go_of(scene):
    job = await scene.job()
    kept, dropped = await scene.table(held_by=job), await scene.table(held_by=job)
    await scene.drop(dropped)
    verdict, swept = await scene.look()
    assert verdict.violated == [f"I7: {dropped} does not exist, but is the argument in job {job}"]
    assert (verdict.orphans, swept) == ([], 0), f"{kept} was released"


@pytest.mark.parametrize("calm", [True, False])
async def test_tables_that_nobody_knows_are_a_fault_where_nothing_broke(scene, calm):
    await scene.table()
    verdict, swept = await scene.look(calm=calm)
    assert (verdict.orphans, swept) == ([], 1)
    assert verdict.violated == (["I8: 1 tables were known to nobody, though nothing broke"] if calm else [])


async def test_a_job_has_as_many_tasks_as_it_must_have(scene):
    """Also those that its tasks add, which only their number tells."""
    for key, tasks in (("grown", 3), ("short", 2), ("twice", 5)):
        job = await scene.job(key, tasks=tasks, total=3)
        for _ in range(tasks):
            await scene.task(job=job)
    found = (await scene.verdict()).faults
    assert [re.sub(r"job \d+ ", "", each) for each in found["lost"]] == ["(short) has 2 tasks, and not 3"]
    assert [re.sub(r"job \d+ ", "", each) for each in found["duplicated"]] == ["(twice) has 5 tasks, and not 3"]


@pytest.mark.parametrize("fired", [True, False])
async def test_two_jobs_for_one_key_are_noticed(scene, fired):
    history.note(scene.directory, "clients", meant="flow", key="said twice", rows=[])
    for _ in range(2):
        await scene.job("said twice", fired=fired)
    assert (await scene.verdict()).duplicated == ["I5: there are 2 jobs with the key said twice"]


async def test_work_that_nobody_asked_for_is_noticed(scene):
    alone = await scene.task(asked=False)
    unheard_of = await scene.job("nobody's", fired=True)
    history.note_attempt(str(scene.directory), "begin", 4711, 1, str(DEFAULT_ORG_ID))
    assert (await scene.verdict()).unexpected == [
        f"task {alone} has no job and no key, and nobody asked for it",
        f"job {unheard_of} has the key nobody's, which nobody used",
        "task 4711 ran, and is not there",
    ]


async def test_items_that_were_posted_are_there_once_and_done(scene):
    """They have no key of their own."""
    posted = partial(history.note, scene.directory, "clients")
    done, dead, waits = [await scene.task(asked=False, status=each) for each in ("COMPLETED", "DEAD_LETTER", "PENDING")]
    posted(meant="posted", key="1", count=4)
    posted(heard="posted", key="1", ids=[done, dead, waits, 4711])
    found = (await scene.verdict()).faults
    assert sorted(found["lost"]) == sorted([f"item {waits}: PENDING", "item 4711: is not there"])
    assert found["unexpected"] == [f"item {dead} is DEAD_LETTER"]
    await scene.task(asked=False)
    assert len((await scene.verdict()).unexpected) == 2, "it was done twice"
    posted(meant="posted", key="2", count=1)
    assert len((await scene.verdict()).unexpected) == 1, "or it is the one of which nobody was told"


async def test_another_chance_that_was_not_used_is_noticed(scene):
    used, not_used = [await scene.task(status="DEAD_LETTER", attempt=each, seen=False) for each in (6, 5)]
    history.note(scene.directory, "clients", heard="redriven", ids=[used, not_used])
    assert (await scene.verdict()).lost == [f"task {not_used} was given 1 more chances, and ran 5 times in all"]


@pytest.mark.parametrize("seconds", [-1.0, 1.0])
async def test_what_begins_before_its_time_is_noticed(scene, seconds):
    scene.meant("later", await scene.task(key="later"))
    history.note(scene.directory, "clients", later=["later", "unheard of"], not_before=time.monotonic() + seconds)
    assert len((await scene.verdict()).disordered) == (seconds > 0)


@pytest.mark.parametrize("status", ["COMPLETED", "CANCELLED", "FAILED"])
async def test_a_job_ends_as_it_may(scene, status):
    job = await scene.job("j", ends=["COMPLETED", "CANCELLED"])
    if status != "COMPLETED":
        tasks = {"FAILED": "failed_tasks", "CANCELLED": "cancelled_tasks"}[status]
        of = {"FAILED": "DEAD_LETTER"}.get(status, status)
        await scene.db.execute(f"UPDATE jobs SET status = $1::text::job_status, total_tasks = 1, {tasks} = 1", status)
        await scene.task(job=job, status=of, seen=False)
    found = await scene.verdict()
    assert (found.unexpected == [f"job {job} (j) is FAILED"]) == (status == "FAILED")
    assert found.violated == []


async def test_a_completed_job_with_an_acknowledged_cancel_is_noticed(scene):
    job = await scene.job("j", ends=["COMPLETED", "CANCELLED"])
    history.note(scene.directory, "clients", heard="cancelled", key="j")
    assert (await scene.verdict()).unexpected == [f"job {job} (j) is COMPLETED"]


async def test_a_job_of_another_org_is_noticed(scene):
    job = await scene.job("theirs", org="other")
    assert (await scene.verdict()).violated == [f"I11: job {job} of org other belongs to {DEFAULT_ORG_ID}"]


# --- leaders ----------------------------------------------------------------------------------------------------------

TAKEN_AWAY = "UPDATE workers SET is_leader = false, leader_until = NULL WHERE id = $1"


async def worker(db, number) -> int:
    await db.execute("INSERT INTO workers (id, pid, hostname, queues) VALUES ($1, 1, 'h', '{default}')", number)
    return number


async def stopped(db, number):
    await db.execute("UPDATE workers SET last_heartbeat = now() - interval '1 hour' WHERE id = $1", number)
    await workers.stop_dead_workers(db, timeout_seconds=60)


async def ran_out(db, number):
    await db.execute("UPDATE workers SET leader_until = now() WHERE id = $1", number)


@pytest.mark.parametrize("end", [workers.resign, stopped, ran_out])
async def test_terms_that_follow_each_other_are_well(scene, end):
    first, second = await worker(scene.db, 1), await worker(scene.db, 2)
    for leader in (first, second):
        assert await workers.lead(scene.db, leader, term_seconds=60) is not None
        await end(scene.db, leader)
    assert (await scene.verdict()).clean


async def test_a_term_that_begins_before_the_former_is_over_is_noticed(scene):
    first, second = await worker(scene.db, 1), await worker(scene.db, 2)
    former = await workers.lead(scene.db, first, term_seconds=60)
    await scene.db.execute(TAKEN_AWAY, first)
    assert (await scene.verdict()).clean, "nobody else leads"
    term = await workers.lead(scene.db, second, term_seconds=60)
    assert (await scene.verdict()).violated == [f"I10: term {term} began before term {former} was over"]


async def test_what_begins_too_early_is_noticed(scene):
    second, first = await scene.task(), await scene.task()
    pair = {"tasks": [first, second], "edges": [(first, second)], "total": 2}
    history.note(scene.directory, "clients", meant="job", key="k", **pair)
    assert (await scene.verdict()).clean, "nobody was told that it was accepted"
    job = await scene.job("k", tasks=2)
    await scene.db.execute("UPDATE tasks SET job_id = $1", job)
    verdict = await scene.verdict()
    assert verdict.disordered == [f"task {second} began before task {first} had ended"]
    assert not verdict.lost


async def test_recovery_counts_from_death_to_the_next_begin(scene):
    task_id, failed = [await scene.task(attempt=2, seen=False) for _ in range(2)]
    await scene.lost(task_id)
    begun = {11: [(task_id, 1, 10.0), (failed, 1, 10.0)], 12: [(task_id, 2, 16.5), (failed, 2, 11.2)]}
    lines = {
        **{
            f"{pid}.tasks": [f"begin {of} {n} {DEFAULT_ORG_ID} {at}" for of, n, at in all_]
            for pid, all_ in begun.items()
        },
        "13.tasks": [f"end {of} 2 {DEFAULT_ORG_ID} 17.0" for of in (task_id, failed)],
        "strikes": [json.dumps({"kind": "worker", "killed": [11], "at": 11.0})],
    }
    for name, text in lines.items():
        (scene.directory / name).write_text("\n".join(text) + "\n")
    verdict = await scene.verdict()
    assert (verdict.clean, verdict.recovered, [each.seconds for each in verdict.recoveries]) == (True, 2, [5.5])
    assert verdict.struck_again == 0


async def test_a_slow_recovery_says_where_its_time_went(scene):
    died = time.monotonic() - 20
    task_id = await scene.task(attempt=2, seen=False)
    await scene.db.execute("UPDATE tasks SET claimed_at = now() - interval '8 s' WHERE id = $1", task_id)
    await scene.lost(task_id, seconds_ago=14.0)
    lines = {
        "11.tasks": [f"begin {task_id} 1 {DEFAULT_ORG_ID} {died - 1}"],
        "12.tasks": [f"{event} {task_id} 2 {DEFAULT_ORG_ID} {died + 12.5}" for event in ("begin", "end")],
        "strikes": [json.dumps({"kind": "worker", "killed": [11], "at": died})],
    }
    for name, text in lines.items():
        (scene.directory / name).write_text("\n".join(text) + "\n")
    verdict = await scene.verdict()
    assert verdict.clean
    [said] = verdict.slow
    assert (
        re.sub(r"\d+\.\d", "#", said)
        == f"task {task_id}, attempt 1: LOST after # s, claimed after # s, begun after # s"
    )
    assert [float(each) for each in re.findall(r"\d+\.\d", said)] == pytest.approx([6.0, 12.0, 12.5], abs=0.5)


@pytest.mark.parametrize("again", ["its next attempt never began", "who had it next was frozen"])
async def test_who_is_struck_again_before_it_begins_is_counted_by_itself(scene, again):
    last = 3 if again == "its next attempt never began" else 2
    task_id = await scene.task(attempt=last, seen=False)
    for attempt in range(1, last):
        await scene.lost(task_id, attempt)
    lines = {
        "11.tasks": [f"begin {task_id} 1 {DEFAULT_ORG_ID} 10.0"],
        "12.tasks": [f"begin {task_id} {last} {DEFAULT_ORG_ID} 26.5", f"end {task_id} {last} {DEFAULT_ORG_ID} 27.0"],
        "strikes": [
            json.dumps({"kind": "worker", "killed": [11], "at": 11.0}),
            json.dumps({"kind": "zombie", "frozen": [12 if last == 2 else 13], "seconds": 9.0, "at": 17.0}),
        ],
    }
    for name, text in lines.items():
        (scene.directory / name).write_text("\n".join(text) + "\n")
    verdict = await scene.verdict()
    assert (verdict.clean, verdict.recoveries, verdict.struck_again) == (True, [], 1)


# --- the reactive DAG -------------------------------------------------------------------------------------------------

A, B, C = [{"id": n, "day": f"2026-01-0{n % 2 + 1}", "amount": 10 * n} for n in (1, 2, 3)]
SUMS = [{"day": "2026-01-02", "total": 40}, {"day": "2026-01-01", "total": 20}]
WHOLE = {"chaos.raw": [A, B, C], "chaos.sales": [A, B, C], "daily": SUMS}


class Flow:
    """Two firings, heard of as they should be; `datasets` is what readers see."""

    def __init__(self, scene, monkeypatch) -> None:
        self.scene, self.datasets = scene, WHOLE
        monkeypatch.setattr(flow, "_rows", self._rows)

    async def _rows(self, connection, clickhouse, name):
        return self.datasets[name]

    async def fire(self, key, rows, *, types=("sell", "tidy", "sums"), heard=True) -> None:
        note = partial(history.note, self.scene.directory, "clients", key=key)
        note(meant="flow", rows=rows)
        job = await self.scene.job(key, tasks=len(types), fired=True)
        for each in types:
            task = await self.scene.task(of=f"chaos.{each}", seen=False, job=job)
            partitions = [rows[0]["day"]] if each == "sums" else None
            await self.scene.db.execute("UPDATE tasks SET partitions = $2 WHERE id = $1", task, partitions)
        if heard:
            note(heard="flow", job=job)

    async def lost(self):
        verdict = await self.scene.verdict()
        assert not any(each for kind, each in verdict.faults.items() if kind != "lost")
        return [re.sub(r"job \d+", "job #", each.removeprefix("I9: ")) for each in verdict.lost]


@pytest.fixture
def reactive(scene, monkeypatch):
    return Flow(scene, monkeypatch)


async def test_sales_that_all_came_in_once_are_well(reactive):
    await reactive.fire("1", [A, B])
    await reactive.fire("2", [C], types=("sell", "tidy"))
    assert await reactive.lost() == [], "somebody else may have summed it up"


async def test_sales_of_a_client_who_was_never_answered_may_be_there_or_not(reactive):
    await reactive.fire("1", [A, B, C])
    await reactive.fire("2", [{**A, "id": 9}], heard=False)
    assert await reactive.lost() == []


@pytest.mark.parametrize(
    ("name", "rows", "said"),
    [
        ("chaos.raw", [A, B], ["sale (3, '2026-01-02', 30) is not in the dataset", "came in 0 times, and is tidied 1"]),
        ("chaos.raw", [A, A, B, C], ["is there 2 times, made 1 times", "came in 2 times, and is tidied 1 times"]),
        ("chaos.raw", [A, B, {**C, "amount": 31}], ["30) is not in", "31) is there 1", "31) came", "30) came"]),
        ("chaos.raw", [A, B, {**C, "day": "2026-01-05"}], ["is not in", "is there 1", "came in", "came in"]),
        ("chaos.sales", [A, B], ["came in 1 times, and is tidied 0 times", "2026-01-02", "2026-01-02"]),
        ("chaos.sales", [A, B, C, C], ["came in 1 times, and is tidied 2 times", "2026-01-02", "2026-01-02"]),
        ("daily", SUMS[:1], ["the sum ('2026-01-01', 20) is there 0 times"]),
        ("daily", [*SUMS, SUMS[0]], ["the sum ('2026-01-02', 40) is there 2 times"]),
        ("daily", [SUMS[0], {**SUMS[1], "total": 21}], ["20) is there 0 times", "21) is there 1 times"]),
    ],
)  # fmt: skip
async def test_what_is_not_in_a_dataset_as_it_should_be_is_noticed(reactive, name, rows, said):
    await reactive.fire("1", [A, B, C])
    reactive.datasets = WHOLE | {name: rows}
    found = await reactive.lost()
    assert len(found) == len(said), found
    assert all(words in each for words, each in zip(said, found, strict=True)), found


@pytest.mark.parametrize(
    ("types", "said"),
    [
        (("sell",), ["job # has 0 tasks of chaos.tidy, and not one"]),
        (("sell", "tidy", "tidy", "sums"), ["job # has 2 tasks of chaos.tidy, and not one"]),
        (("sell", "tidy", "sums", "sums"), ["job # has 2 tasks of chaos.sums for 2026-01-02"]),
    ],
)
async def test_an_event_that_was_lost_or_heard_twice_is_noticed_though_a_later_one_made_up_for_it(
    reactive, types, said
):
    await reactive.fire("1", [A, B], types=types)
    await reactive.fire("2", [C])
    assert await reactive.lost() == said
