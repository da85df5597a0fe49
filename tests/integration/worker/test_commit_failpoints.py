"""A worker process is killed or loses its connection before and after each commit.

No outcome is lost or accepted twice, and all invariants hold.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import textwrap
from collections.abc import Sequence

import pytest

from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.engine.maintenance import reap_expired_leases
from aaiclick.store.engine.submission_plan import NewGroup, NewTask, Plan
from aaiclick.store.engine.submit import NewJob, submit_job
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import TaskOptions
from tests.integration.gateways import NO_CHILDREN, ONE_REQUEST, postgres_only
from tests.integration.worker.worker_fork_server import WorkerProcesses

TASKS = """
import asyncio, os
from aaiclick.orchestration import Task, add_task_to_job, create_job, get_current_context

async def plain(): pass
async def slow(): await asyncio.sleep(0.5)
async def later(seconds): await asyncio.sleep(float(seconds))
def flaky(path):
    try: os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError: return
    raise OSError("the first time never works")
async def grow(): await add_task_to_job(get_current_context().job_id, "users_tasks.plain")
async def parent(): await create_job("child", Task("users_tasks.plain"))
async def wait_for(path):
    while not os.path.exists(path): await asyncio.sleep(0.02)
"""

AUDIT = """
CREATE TABLE accepted (task_id bigint, attempt int);
ALTER TABLE accepted ENABLE ROW LEVEL SECURITY;
CREATE FUNCTION note_accepted() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO accepted VALUES (NEW.id, NEW.attempt); RETURN NULL; END $$;
CREATE TRIGGER note_accepted AFTER UPDATE ON tasks FOR EACH ROW
    WHEN (NEW.status = 'COMPLETED' AND OLD.status <> 'COMPLETED') EXECUTE FUNCTION note_accepted();
"""

FAILPOINTS = [("claim", "plain"), ("start", "slow"), ("end", "linked"), ("end", "flaky"), ("add", "grow")]
"""Failpoints of a worker process, with the type of job that reaches each first."""

PARTS = [("complete", "plain"), ("complete_linked", "chain"), ("flush", "group")]
"""Failpoints without an HTTP request of their own."""

BOTH = "before after"


def failpoint_cases(once: str) -> list[tuple[str, str, str]]:
    """Test cases: one job passes both moments of a failpoint, except for the job type `once`."""
    return [(*case, moment) for case in FAILPOINTS for moment in (BOTH.split() if case[1] == once else [BOTH])]


@pytest.fixture
async def db(aaiclick_postgres):
    connection = await connect(aaiclick_postgres)
    await connection.execute(AUDIT)
    yield connection
    await connection.execute("DROP FUNCTION note_accepted CASCADE; DROP TABLE accepted")
    await connection.close()


class JobUnderTest:
    """Submits one job and checks its results."""

    def __init__(self, db, directory) -> None:
        self.db = db
        self.directory = directory
        self.job_id = get_snowflake_id()

    async def submit(self, job_type: str) -> None:
        def new(function: str, group_id: int | None = None, **kwargs: str) -> NewTask:
            name = f"users_tasks.{function}"
            policy = json.dumps({"base_seconds": 0.01})
            return NewTask(
                get_snowflake_id(), name, entrypoint=name, kwargs=json.dumps(kwargs), group_id=group_id,
                options=TaskOptions(10, retry_policy=policy),
            )  # fmt: skip

        groups: list[NewGroup] = []
        edges: list[tuple[int, int]] = []
        if job_type == "linked":
            groups = [NewGroup(get_snowflake_id(), "g")]
            tasks = [new("plain"), new("plain", groups[0].id), new("plain", groups[0].id), new("plain")]
            edges = [(tasks[0].id, groups[0].id), (groups[0].id, tasks[3].id)]
        elif job_type == "chain":
            tasks = [new("plain") for _ in range(4)]
            edges = [(first.id, second.id) for first, second in itertools.pairwise(tasks)]
        elif job_type == "group":  # members that end alone: the claim after them finds nothing, and does not flush
            groups = [NewGroup(get_snowflake_id(), "g")]
            tasks = [new("later", groups[0].id, seconds=seconds) for seconds in ("0", "0.1", "0.2")]
        elif job_type == "flaky":
            tasks = [new("flaky", path=str(self.directory / "tried")), new("plain")]
            edges = [(tasks[0].id, tasks[1].id)]
        elif job_type == "waiting":
            tasks = [new("wait_for", path=str(self.directory / "go"))]
        else:
            tasks = [new(job_type), *(new("plain") for _ in range(4))]
        await submit_job(self.db, NewJob(self.job_id, "job"), Plan(tasks, groups, edges))

    async def wait_until(self, status: str, table: str = "jobs", dead: Sequence[int] = ()) -> None:
        """Wait for a status; meanwhile the leases of the workers `dead` expire.

        A request of a killed process may still be on its way: the server then leases tasks to the dead worker.
        """
        async with asyncio.timeout(100):
            while True:
                statuses = {row["status"] for row in await self.db.fetch(f"SELECT status::text FROM {table}")}
                if status in statuses and (status != "COMPLETED" or len(statuses) == 1):  # child jobs too
                    return
                await self.expire(dead)
                await asyncio.sleep(0.01)

    async def recover(self, dead: Sequence[int]) -> None:
        """Expire the leases of dead workers, as the reaper does."""
        assert await check_invariants(self.db) == []
        await self.expire(dead)
        assert await check_invariants(self.db) == []

    async def expire(self, dead: Sequence[int]) -> None:
        rows = await self.db.fetch(
            "UPDATE tasks SET lease_expires_at = now() - interval '1 s'"
            " WHERE status IN ('CLAIMED', 'RUNNING') AND worker_id = ANY ($1::bigint[]) RETURNING id",
            list(dead),
        )
        if rows:
            await reap_expired_leases(self.db, delay_seconds=lambda *_: 0.0)

    async def until_killed(self, worker_processes: WorkerProcesses, pid: int, dead: Sequence[int]) -> None:
        """Wait until the failpoint killed the process, and expire leases of earlier dead workers."""
        wait = asyncio.create_task(worker_processes.wait(pid, 100))
        while not wait.done():
            await self.expire(dead)
            await asyncio.wait([wait], timeout=0.05)
        assert await wait == -signal.SIGKILL

    async def assert_done(self) -> None:
        statuses = await self.db.fetch("SELECT status::text, count(*) FROM tasks GROUP BY 1")
        assert [row["status"] for row in statuses] == ["COMPLETED"]
        accepted = await self.db.fetch("SELECT task_id, count(*) FROM accepted GROUP BY 1")
        assert {row["count"] for row in accepted} == {1}
        assert len(accepted) == statuses[0]["count"]
        assert await check_invariants(self.db, grace_seconds=0) == []


@pytest.fixture
def work(db, worker_processes, tmp_path):
    (tmp_path / "users_tasks.py").write_text(textwrap.dedent(TASKS))
    return JobUnderTest(db, tmp_path)


@pytest.mark.parametrize(("failpoint", "job_type", "when"), failpoint_cases(once="flaky"))
async def test_killed_at_a_commit_and_finished_by_another(worker_processes, work, failpoint, job_type, when):
    await finished_by_another(worker_processes, work, failpoint, job_type, when)


@pytest.mark.parametrize(("failpoint", "job_type", "when"), failpoint_cases(once="slow"))
async def test_cut_off_at_a_commit_and_finished_by_itself(worker_processes, work, failpoint, job_type, when):
    await finished_by_itself(worker_processes, work, failpoint, job_type, when)
    if failpoint == "end" and job_type != "flaky":  # the outcome is sent again, the task is not run again
        assert await work.db.fetchval("SELECT attempt FROM tasks ORDER BY id LIMIT 1") == 1


@postgres_only(NO_CHILDREN)
async def test_killed_at_the_submit_of_a_child_and_finished_by_another(worker_processes, work):
    """The next attempt finds the child that the killed one has submitted."""
    await finished_by_another(worker_processes, work, "submit", "parent", BOTH)
    assert await work.db.fetchval("SELECT count(*) FROM jobs WHERE parent_job_id = $1", work.job_id) == 1


@postgres_only(ONE_REQUEST)
@pytest.mark.parametrize(("failpoint", "job_type"), PARTS)
async def test_killed_at_a_part_of_an_end_and_finished_by_another(worker_processes, work, failpoint, job_type):
    await finished_by_another(worker_processes, work, failpoint, job_type, BOTH)


@postgres_only(ONE_REQUEST)
@pytest.mark.parametrize(("failpoint", "job_type"), PARTS)
async def test_cut_off_at_a_part_of_an_end_and_finished_by_itself(worker_processes, work, failpoint, job_type):
    await finished_by_itself(worker_processes, work, failpoint, job_type, BOTH)
    assert await work.db.fetchval("SELECT max(attempt) FROM tasks") == 1


async def finished_by_another(worker_processes, work, failpoint: str, job_type: str, when: str) -> None:
    """Kill a process at each moment; a last one completes the job."""
    await work.submit(job_type)
    dead: list[int] = []
    for moment in when.split():
        pid = await worker_processes.start(f"{failpoint}.{moment}=kill")
        await work.until_killed(worker_processes, pid, dead)
        dead.append(worker_processes.worker_ids[pid])
        await work.recover(dead)
    other = await worker_processes.start()
    await work.wait_until("COMPLETED", dead=dead)
    await worker_processes.end(other)
    await work.assert_done()


async def finished_by_itself(worker_processes, work, failpoint: str, job_type: str, when: str) -> None:
    await work.submit(job_type)
    pid = await worker_processes.start(",".join(f"{failpoint}.{moment}=error" for moment in when.split()))
    await work.wait_until("COMPLETED")
    await worker_processes.end(pid)
    for moment in when.split():
        assert (work.directory / f"{failpoint}.{moment}").exists()
    await work.assert_done()


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_process_killed_while_it_releases(worker_processes, work, moment):
    await work.submit("waiting")
    pid = await worker_processes.start(f"end.{moment}=kill")
    await work.wait_until("RUNNING", "tasks")
    await worker_processes.hang_up(pid)
    assert await worker_processes.wait(pid) == -signal.SIGKILL
    given_back = await work.db.fetchval("SELECT count(*) FROM task_attempts WHERE outcome = 'RELEASED'")
    assert given_back == (moment == "after")
    dead = [worker_processes.worker_ids[pid]]
    await work.recover(dead)
    (work.directory / "go").touch()
    other = await worker_processes.start()
    await work.wait_until("COMPLETED", dead=dead)
    await worker_processes.end(other)
    await work.assert_done()


async def test_claims_in_flight_at_a_stop_are_released(worker_processes, work):
    await work.submit("waiting")
    pid = await worker_processes.start("claim.after=delay:1")
    await work.wait_until("CLAIMED", "tasks")
    await worker_processes.end(pid)
    assert await work.db.fetchval("SELECT status::text FROM tasks") == "PENDING"


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_killed_at_a_heartbeat_and_finished_by_another(worker_env, worker_processes, work, moment):
    """The supervisor is killed at its heartbeat; its processes release their tasks."""
    await work.submit("waiting")
    faults = {"AAICLICK_FAULTS": f"extend_worker_leases.{moment}=kill", "WORKER_HEARTBEAT_INTERVAL": "0.2"}
    supervisor = worker_env.start(**faults)
    assert supervisor.wait() == -signal.SIGKILL
    (work.directory / "go").touch()
    other = await worker_processes.start()
    await work.wait_until("COMPLETED")
    await worker_processes.end(other)
    await work.assert_done()
