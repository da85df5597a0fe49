"""The checker of a chaos run detects each violation."""

from __future__ import annotations

import json
import re
import time
from functools import partial

import pytest

from aaiclick.chaos import dag_workload, history
from aaiclick.chaos.checker import TRIGGERS, check_run
from aaiclick.chaos.load_clients import TASK_MODULE
from aaiclick.chaos.run import check_databases
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import workers
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect


class RunData:
    """A database and histories with one violation after the other."""

    def __init__(self, db, client, directory, endpoints) -> None:
        self.db, self._client, self.directory, self._endpoints = db, client, directory, endpoints

    async def task(
        self,
        *,
        status="COMPLETED",
        attempt=1,
        key=None,
        recorded=True,
        org=DEFAULT_ORG_ID,
        of="plain",
        job=None,
        requested=True,
    ) -> int:
        task_id = get_snowflake_id()
        await self.db.execute(
            "INSERT INTO tasks (id, type, status, attempt, idempotency_key, readiness, completed_at, job_id)"
            " VALUES ($1, $4, 'PENDING', $2, $3, 'READY', NULL, $5)",
            task_id, attempt, key, of if "." in of else f"{TASK_MODULE}.{of}", job,
        )  # fmt: skip
        if key is None and requested:
            history.record_event(self.directory, "clients", requested="tasks", ids=[task_id])
        if status != "PENDING":
            await self.db.execute(
                "UPDATE tasks SET status = $2, readiness = NULL, completed_at = now() WHERE id = $1", task_id, status
            )
        if recorded:
            for event in ("begin", "end"):
                history.record_attempt(str(self.directory), event, task_id, attempt, str(org))
        return task_id

    async def lost(self, task_id, attempt=1, seconds_ago=0.0) -> None:
        await self.db.execute(
            "INSERT INTO task_attempts (task_id, attempt, charged, outcome, ended_at)"
            " VALUES ($1, $2, true, 'LOST', now() - $3 * interval '1 second')",
            task_id, attempt, seconds_ago,
        )  # fmt: skip

    def item(self, key, task_id, status="COMPLETED", org=DEFAULT_ORG_ID):
        history.record_event(self.directory, "clients", requested="items", org=str(org), keys={key: status})
        history.record_event(self.directory, "clients", acknowledged="items", ids={key: task_id})

    async def job(self, key="j", *, over=True, tasks=0, total=None, fired=False, **more) -> int:
        """An acknowledged job; `total` is the expected number of tasks if it differs from `tasks`."""
        job_id = get_snowflake_id()
        await self.db.execute(
            "INSERT INTO jobs (id, org_id, name, status, completed_at, total_tasks, trigger)"
            " VALUES ($1, $2, $6, $3::text::job_status, CASE WHEN $4 THEN now() END, $5, $7)",
            job_id, DEFAULT_ORG_ID, "COMPLETED" if over else "PENDING", over, tasks,
            "chaos.sell" if fired else f"chaos {key}", json.dumps({"payload": {"key": key}}) if fired else None,
        )  # fmt: skip
        if not fired:
            total = tasks if total is None else total
            history.record_event(
                self.directory, "clients", requested="job", key=key, tasks=[], edges=[], total=total, **more
            )
            history.record_event(self.directory, "clients", acknowledged="job", key=key, job=job_id)
        return job_id

    async def table(self, *, held_by=None) -> str:
        """A table in ClickHouse, and its reference in PostgreSQL if a job holds it; created a second ago."""
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

    async def result(self):
        return await check_run(self.db, self._client, self.directory)

    async def check_databases(self, *, calm=False):
        """Check the databases as a run does at its end."""
        return await check_databases(*self._endpoints, self.directory, calm=calm)


@pytest.fixture
async def run_data(aaiclick_postgres, aaiclick_clickhouse, tmp_path):
    db = await connect(aaiclick_postgres)
    await db.execute(TRIGGERS)
    endpoints = aaiclick_postgres, aaiclick_clickhouse
    yield RunData(db, await connect_clickhouse(aaiclick_clickhouse), tmp_path, endpoints)
    await db.execute("DROP SCHEMA chaos CASCADE")  # a database with the original schema is reused, which is faster
    await db.close()


async def test_each_violation_is_detected(run_data):
    run_data.item("good", await run_data.task(key="good"))
    run_data.item("bad", await run_data.task(key="bad", status="DEAD_LETTER"), "DEAD_LETTER")
    assert (await run_data.result()).is_clean

    run_data.item("gone", 12345)
    run_data.item("waits", await run_data.task(status="PENDING", key="waits"))
    run_data.item("dead", await run_data.task(status="DEAD_LETTER", key="dead"))
    await run_data.task(key="nobody's")
    unseen = await run_data.task(recorded=False)
    run_data.item("foreign", await run_data.task(key="foreign"), org="other")
    stranger = await run_data.task(org="other")
    twice = await run_data.task()
    await run_data.db.execute("INSERT INTO chaos.outcomes SELECT * FROM chaos.outcomes WHERE task_id = $1", twice)
    run_data.item("two", await run_data.task(key="two"))
    run_data.item("two", 77)
    await run_data.db.execute("INSERT INTO chaos.terms VALUES (3, 1), (3, 2)")
    await run_data.table()
    findings = (await run_data.result()).findings_by_kind
    assert [finding.split(",")[0] for finding in findings["lost"]] == ["item gone", "item waits"]
    assert len(findings["unexpected"]) == 3
    assert any(
        f"task {unseen} is completed by attempt 1, which never ended" in finding for finding in findings["unexpected"]
    )
    assert [finding.split(" ")[0] for finding in findings["duplicated"]] == ["I5:"]
    assert findings["accepted twice"] == [f"task {twice} was completed 2 times"]
    assert {finding[:4] for finding in findings["violated"]} == {"I10:", "I11:"}
    assert any(f"task {stranger}" in finding for finding in findings["violated"])
    assert len(findings["orphans"]) == 1


async def test_lost_job_is_reported(run_data):
    await run_data.job("over")
    stuck = await run_data.job("stuck", over=False)
    result, _ = await run_data.check_databases()
    assert result.lost == [f"job {stuck}: PENDING"]


async def test_table_dropped_too_early_is_detected(run_data):
    job = await run_data.job()
    released, dropped = await run_data.table(held_by=job), await run_data.table(held_by=job)
    await run_data.drop(dropped)
    result, swept = await run_data.check_databases()
    assert result.violated == [f"I7: {dropped} does not exist, but is the argument in job {job}"]
    assert (result.orphans, swept) == ([], 0), f"{released} was released"


@pytest.mark.parametrize("calm", [True, False])
async def test_unreferenced_tables_are_violation_without_faults(run_data, calm):
    await run_data.table()
    result, swept = await run_data.check_databases(calm=calm)
    assert (result.orphans, swept) == ([], 1)
    assert result.violated == (["I8: 1 tables had no reference, without any fault"] if calm else [])


async def test_wrong_number_of_tasks_is_detected(run_data):
    """Added tasks are only known by their number."""
    for key, tasks in (("grown", 3), ("short", 2), ("twice", 5)):
        job = await run_data.job(key, tasks=tasks, total=3)
        for _ in range(tasks):
            await run_data.task(job=job)
    findings = (await run_data.result()).findings_by_kind
    assert [re.sub(r"job \d+ ", "", finding) for finding in findings["lost"]] == ["(short) has 2 tasks instead of 3"]
    assert [re.sub(r"job \d+ ", "", finding) for finding in findings["duplicated"]] == [
        "(twice) has 5 tasks instead of 3"
    ]


@pytest.mark.parametrize("fired", [True, False])
async def test_two_jobs_for_one_key_are_detected(run_data, fired):
    history.record_event(run_data.directory, "clients", requested="flow", key="said twice", rows=[])
    for _ in range(2):
        await run_data.job("said twice", fired=fired)
    assert (await run_data.result()).duplicated == ["I5: there are 2 jobs with the key said twice"]


async def test_unrequested_work_is_detected(run_data):
    alone = await run_data.task(requested=False)
    unrequested = await run_data.job("nobody's", fired=True)
    history.record_attempt(str(run_data.directory), "begin", 4711, 1, str(DEFAULT_ORG_ID))
    assert (await run_data.result()).unexpected == [
        f"task {alone} has no job and no key, and no client requested it",
        f"job {unrequested} has the key nobody's, which no client used",
        "task 4711 ran, but does not exist",
    ]


async def test_posted_items_exist_once_and_are_done(run_data):
    """They have no idempotency key."""
    posted = partial(history.record_event, run_data.directory, "clients")
    done, dead, waits = [
        await run_data.task(requested=False, status=status_) for status_ in ("COMPLETED", "DEAD_LETTER", "PENDING")
    ]
    posted(requested="posted", key="1", count=4)
    posted(acknowledged="posted", key="1", ids=[done, dead, waits, 4711])
    findings = (await run_data.result()).findings_by_kind
    assert sorted(findings["lost"]) == sorted([f"item {waits}: PENDING", "item 4711: missing"])
    assert findings["unexpected"] == [f"item {dead} is DEAD_LETTER"]
    await run_data.task(requested=False)
    assert len((await run_data.result()).unexpected) == 2, "it was executed twice"
    posted(requested="posted", key="2", count=1)
    assert len((await run_data.result()).unexpected) == 1, "or it belongs to the unanswered request"


async def test_unused_redrive_is_detected(run_data):
    used, not_used = [await run_data.task(status="DEAD_LETTER", attempt=count, recorded=False) for count in (6, 5)]
    history.record_event(run_data.directory, "clients", acknowledged="redriven", ids=[used, not_used])
    assert (await run_data.result()).lost == [f"task {not_used} was redriven 1 times, but ran only 5 times"]


@pytest.mark.parametrize("seconds", [-1.0, 1.0])
async def test_item_begun_before_scheduled_time_is_detected(run_data, seconds):
    run_data.item("later", await run_data.task(key="later"))
    history.record_event(
        run_data.directory, "clients", later=["later", "unheard of"], not_before=time.monotonic() + seconds
    )
    assert len((await run_data.result()).disordered) == (seconds > 0)


@pytest.mark.parametrize("status", ["COMPLETED", "CANCELLED", "FAILED"])
async def test_job_ends_in_allowed_status(run_data, status):
    job = await run_data.job("j", ends=["COMPLETED", "CANCELLED"])
    if status != "COMPLETED":
        tasks = {"FAILED": "failed_tasks", "CANCELLED": "cancelled_tasks"}[status]
        task_status = {"FAILED": "DEAD_LETTER"}.get(status, status)
        await run_data.db.execute(
            f"UPDATE jobs SET status = $1::text::job_status, total_tasks = 1, {tasks} = 1", status
        )
        await run_data.task(job=job, status=task_status, recorded=False)
    result = await run_data.result()
    assert (result.unexpected == [f"job {job} (j) is FAILED: None"]) == (status == "FAILED")
    assert result.violated == []


async def test_completed_job_after_acknowledged_cancel_is_detected(run_data):
    job = await run_data.job("j", ends=["COMPLETED", "CANCELLED"])
    history.record_event(run_data.directory, "clients", acknowledged="cancelled", key="j")
    assert (await run_data.result()).unexpected == [f"job {job} (j) is COMPLETED: None"]


async def test_job_of_another_org_is_detected(run_data):
    job = await run_data.job("theirs", org="other")
    assert (await run_data.result()).violated == [f"I11: job {job} of org other belongs to {DEFAULT_ORG_ID}"]


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


@pytest.mark.parametrize("end", [stopped, ran_out])
async def test_consecutive_leader_terms_are_valid(run_data, end):
    first, second = await worker(run_data.db, 1), await worker(run_data.db, 2)
    for leader in (first, second):
        assert await workers.lead(run_data.db, leader, term_seconds=60) is not None
        await end(run_data.db, leader)
    assert (await run_data.result()).is_clean


async def test_overlapping_leader_terms_are_detected(run_data):
    first, second = await worker(run_data.db, 1), await worker(run_data.db, 2)
    former = await workers.lead(run_data.db, first, term_seconds=60)
    await run_data.db.execute(TAKEN_AWAY, first)
    assert (await run_data.result()).is_clean, "there is no other leader"
    term = await workers.lead(run_data.db, second, term_seconds=60)
    assert (await run_data.result()).violated == [f"I10: term {term} began before term {former} ended"]


async def test_task_begun_before_predecessor_is_detected(run_data):
    second, first = await run_data.task(), await run_data.task()
    pair = {"tasks": [first, second], "edges": [(first, second)], "total": 2}
    history.record_event(run_data.directory, "clients", requested="job", key="k", **pair)
    assert (await run_data.result()).is_clean, "it was not acknowledged"
    job = await run_data.job("k", tasks=2)
    await run_data.db.execute("UPDATE tasks SET job_id = $1", job)
    result = await run_data.result()
    assert result.disordered == [f"task {second} began before task {first} had ended"]
    assert not result.lost


async def test_recovery_time_is_death_to_next_begin(run_data):
    task_id, failed = [await run_data.task(attempt=2, recorded=False) for _ in range(2)]
    await run_data.lost(task_id)
    begun = {11: [(task_id, 1, 10.0), (failed, 1, 10.0)], 12: [(task_id, 2, 16.5), (failed, 2, 11.2)]}
    lines = {
        **{
            f"{pid}.tasks": [f"begin {task} {n} {DEFAULT_ORG_ID} {at}" for task, n, at in begins]
            for pid, begins in begun.items()
        },
        "13.tasks": [f"end {task} 2 {DEFAULT_ORG_ID} 17.0" for task in (task_id, failed)],
        "faults": [json.dumps({"kind": "worker", "killed": [11], "at": 11.0})],
    }
    for name, text in lines.items():
        (run_data.directory / name).write_text("\n".join(text) + "\n")
    result = await run_data.result()
    assert (result.is_clean, result.recovered, [recovery.seconds for recovery in result.recoveries]) == (True, 2, [5.5])
    assert result.faulted_again == 0


async def test_slow_recovery_has_time_line(run_data):
    died = time.monotonic() - 20
    task_id = await run_data.task(attempt=2, recorded=False)
    await run_data.db.execute("UPDATE tasks SET claimed_at = now() - interval '8 s' WHERE id = $1", task_id)
    await run_data.lost(task_id, seconds_ago=14.0)
    lines = {
        "11.tasks": [f"begin {task_id} 1 {DEFAULT_ORG_ID} {died - 1}"],
        "12.tasks": [f"{event} {task_id} 2 {DEFAULT_ORG_ID} {died + 12.5}" for event in ("begin", "end")],
        "faults": [json.dumps({"kind": "worker", "killed": [11], "at": died})],
    }
    for name, text in lines.items():
        (run_data.directory / name).write_text("\n".join(text) + "\n")
    result = await run_data.result()
    assert result.is_clean
    [line] = result.slow
    assert (
        re.sub(r"\d+\.\d", "#", line)
        == f"task {task_id}, attempt 1: LOST after # s, claimed after # s, begun after # s"
    )
    assert [float(seconds) for seconds in re.findall(r"\d+\.\d", line)] == pytest.approx([6.0, 12.0, 12.5], abs=0.5)


@pytest.mark.parametrize("cause", ["next attempt never began", "next worker was suspended"])
async def test_recovery_with_second_fault_is_counted_separately(run_data, cause):
    last = 3 if cause == "next attempt never began" else 2
    task_id = await run_data.task(attempt=last, recorded=False)
    for attempt in range(1, last):
        await run_data.lost(task_id, attempt)
    lines = {
        "11.tasks": [f"begin {task_id} 1 {DEFAULT_ORG_ID} 10.0"],
        "12.tasks": [f"begin {task_id} {last} {DEFAULT_ORG_ID} 26.5", f"end {task_id} {last} {DEFAULT_ORG_ID} 27.0"],
        "faults": [
            json.dumps({"kind": "worker", "killed": [11], "at": 11.0}),
            json.dumps({"kind": "zombie", "frozen": [12 if last == 2 else 13], "seconds": 9.0, "at": 17.0}),
        ],
    }
    for name, text in lines.items():
        (run_data.directory / name).write_text("\n".join(text) + "\n")
    result = await run_data.result()
    assert (result.is_clean, result.recoveries, result.faulted_again) == (True, [], 1)


# --- the reactive DAG -------------------------------------------------------------------------------------------------

A, B, C = [{"id": n, "day": f"2026-01-0{n % 2 + 1}", "amount": 10 * n} for n in (1, 2, 3)]
SUMS = [{"day": "2026-01-02", "total": 40}, {"day": "2026-01-01", "total": 20}]
WHOLE = {"chaos.raw": [A, B, C], "chaos.sales": [A, B, C], "daily": SUMS} | {
    "chaos.total": [{"sales": 3, "amount": 60}]
}


class ReactiveDag:
    """Two acknowledged triggers; `datasets` is what readers see."""

    def __init__(self, run_data, monkeypatch) -> None:
        self.run_data, self.datasets = run_data, WHOLE
        monkeypatch.setattr(dag_workload, "_read_rows", self._rows)

    async def _rows(self, connection, clickhouse, name):
        return self.datasets[name]

    async def fire(self, key, rows, *, types=("sell", "tidy", "sums"), acknowledged=True) -> None:
        record = partial(history.record_event, self.run_data.directory, "clients", key=key)
        record(requested="flow", rows=rows)
        job = await self.run_data.job(key, tasks=len(types), fired=True)
        for type_ in types:
            task = await self.run_data.task(of=f"chaos.{type_}", recorded=False, job=job)
            partitions = [rows[0]["day"]] if type_ == "sums" else None
            await self.run_data.db.execute("UPDATE tasks SET partitions = $2 WHERE id = $1", task, partitions)
        if acknowledged:
            record(acknowledged="flow", job=job)

    async def lost(self):
        result = await self.run_data.result()
        assert not any(findings for finding_kind, findings in result.findings_by_kind.items() if finding_kind != "lost")
        return [re.sub(r"job \d+", "job #", finding.removeprefix("I9: ")) for finding in result.lost]


@pytest.fixture
def reactive(run_data, monkeypatch):
    return ReactiveDag(run_data, monkeypatch)


async def test_complete_sales_are_valid(reactive):
    await reactive.fire("1", [A, B])
    await reactive.fire("2", [C], types=("sell", "tidy"))
    assert await reactive.lost() == [], "another run may have summed it"


async def test_unacknowledged_sales_may_exist(reactive):
    await reactive.fire("1", [A, B, C])
    await reactive.fire("2", [{**A, "id": 9}], acknowledged=False)
    assert await reactive.lost() == []


@pytest.mark.parametrize(
    ("name", "rows", "expected"),
    [
        ("chaos.raw", [A, B], ["sale (3, '2026-01-02', 30) is missing in the dataset", "added 0 times and cleaned 1"]),
        ("chaos.raw", [A, A, B, C], ["is there 2 times, requested 1 times", "added 2 times and cleaned 1 times"]),
        ("chaos.raw", [A, B, {**C, "amount": 31}], ["30) is missing", "31) is there 1", "31) was", "30) was"]),
        ("chaos.raw", [A, B, {**C, "day": "2026-01-05"}], ["is missing", "is there 1", "was added", "was added"]),
        ("chaos.sales", [A, B], ["added 1 times and cleaned 0 times", "the total is", "2026-01-02", "2026-01-02"]),
        ("chaos.sales", [A, B, C, C], ["added 1 times and cleaned 2", "the total is", "2026-01-02", "2026-01-02"]),
        ("chaos.total", [{"sales": 2, "amount": 40}], ["the total is [(2, 40)] instead of (3, 60)"]),
        ("daily", SUMS[:1], ["the sum ('2026-01-01', 20) is there 0 times"]),
        ("daily", [*SUMS, SUMS[0]], ["the sum ('2026-01-02', 40) is there 2 times"]),
        ("daily", [SUMS[0], {**SUMS[1], "total": 21}], ["20) is there 0 times", "21) is there 1 times"]),
    ],
)  # fmt: skip
async def test_wrong_dataset_content_is_detected(reactive, name, rows, expected):
    await reactive.fire("1", [A, B, C])
    reactive.datasets = WHOLE | {name: rows}
    findings = await reactive.lost()
    assert len(findings) == len(expected), findings
    assert all(text in finding for text, finding in zip(expected, findings, strict=True)), findings


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (("sell",), ["job # has 0 tasks of chaos.tidy instead of one"]),
        (("sell", "tidy", "tidy", "sums"), ["job # has 2 tasks of chaos.tidy instead of one"]),
        (("sell", "tidy", "sums", "sums"), ["job # has 2 tasks of chaos.sums for 2026-01-02"]),
    ],
)
async def test_lost_or_repeated_event_is_detected(reactive, types, expected):
    await reactive.fire("1", [A, B], types=types)
    await reactive.fire("2", [C])
    assert await reactive.lost() == expected
