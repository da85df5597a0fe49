"""Histories against PostgreSQL and ClickHouse: what was lost, done twice, too early, or without being asked for.

| | how |
|---|---|
| I1 | everything that a client was told is there is there, and has ended |
| I2, I3 | one success of each task and attempt, counted by a trigger of this run; what the doctor finds |
| I4 | no attempt began before one of each predecessor had ended, or before its time, by the tasks' own histories |
| I5 | one task for each key and one job for each, with as many tasks as it must have, whatever was said twice |
| I6, I12 | what the doctor finds; poison among the dead letters and nothing else |
| I10 | each term given once, and not before the former one was over, by a trigger of this run |
| I7, I8 | tables and references agree, before anything is let go of and after; after two sweeps nothing is left |
| I9 | nothing waits in the outbox; every sale that a client was told of is in the reactive DAG's datasets, once |
| I11 | tasks ran for the org that they were submitted for |
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aaiclick.chaos import history
from aaiclick.chaos.flow import differences
from aaiclick.chaos.history import Seen
from aaiclick.chaos.load import FILE, JOB_NAME, POISON_ATTEMPTS
from aaiclick.chaos.recoveries import Recovery, explain, recoveries
from aaiclick.chaos.servers import LEASE_SECONDS
from aaiclick.data.client import Client
from aaiclick.orchestration.inventory import disagreements
from aaiclick.store.doctor import check_invariants
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

WATCH = """
CREATE SCHEMA chaos;
CREATE TABLE chaos.outcomes (task_id bigint, attempt int, status text);
CREATE FUNCTION chaos.outcome() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN INSERT INTO chaos.outcomes VALUES (NEW.id, NEW.attempt, NEW.status); RETURN NULL; END $$;
CREATE TRIGGER chaos_outcome AFTER UPDATE OF status ON tasks FOR EACH ROW
    WHEN (NEW.status = 'COMPLETED') EXECUTE FUNCTION chaos.outcome();
CREATE TABLE chaos.terms (term bigint, worker_id bigint, began_at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION chaos.term() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN INSERT INTO chaos.terms VALUES (NEW.leader_term, NEW.id); RETURN NULL; END $$;
CREATE TRIGGER chaos_term AFTER UPDATE ON workers FOR EACH ROW
    WHEN (NEW.is_leader AND (NEW.leader_term IS DISTINCT FROM OLD.leader_term OR NOT OLD.is_leader))
    EXECUTE FUNCTION chaos.term();
CREATE TABLE chaos.ends (
    term bigint, until timestamptz, stopped bool, by text, ended_at timestamptz DEFAULT clock_timestamp()
);
CREATE FUNCTION chaos.term_end() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO chaos.ends VALUES (OLD.leader_term, OLD.leader_until, NEW.status = 'STOPPED', current_query());
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_term_end AFTER UPDATE ON workers FOR EACH ROW
    WHEN (OLD.is_leader AND NOT NEW.is_leader) EXECUTE FUNCTION chaos.term_end();
"""
"""What the run itself writes down about outcomes and leaders, in the transactions that make them; not among our
tables, where the wall between organisations would be missed."""


FAULTS = (
    "lost", "unexpected", "duplicated", "accepted twice", "disordered", "orphans", "outbox left", "violated",
)  # fmt: skip


MOST_RECOVERY_SECONDS = LEASE_SECONDS + 5.0
GRACE_SECONDS = 30.0


@dataclass
class Verdict:
    """What was found; everything but the figures should be empty."""

    lost: list[str] = field(default_factory=list[str])
    unexpected: list[str] = field(default_factory=list[str])
    duplicated: list[str] = field(default_factory=list[str])
    accepted_twice: list[str] = field(default_factory=list[str])
    disordered: list[str] = field(default_factory=list[str])
    orphans: list[str] = field(default_factory=list[str])
    outbox_left: list[str] = field(default_factory=list[str])
    violated: list[str] = field(default_factory=list[str])
    recovered: int = 0
    tasks: int = 0
    jobs: int = 0
    recoveries: list[Recovery] = field(default_factory=list[Recovery])
    """Tasks of killed processes that began again, the quickest first."""
    slow: list[str] = field(default_factory=list[str])
    """Where the time of those that took too long went."""
    struck_again: int = 0
    """Those of a killed process whose next attempt was struck, too, before it began."""
    ends: list[float] = field(default_factory=list[float])
    """When attempts came to their end, by the clock of the histories."""

    @property
    def faults(self) -> dict[str, list[str]]:
        return {name: getattr(self, name.replace(" ", "_")) for name in FAULTS}

    @property
    def clean(self) -> bool:
        return not any(self.faults.values())


async def judge(connection: Connection, clickhouse: Client, directory: Path) -> Verdict:
    """Compare what was seen with what is there, once everything has come to rest."""
    verdict = Verdict()
    meant = history.notes(directory, FILE)
    seen: dict[int, list[Seen]] = defaultdict(list)
    for moment in history.attempts(directory):
        seen[moment.task_id].append(moment)
    rows: dict[int, Any] = {row["id"]: row for row in await connection.fetch(TASKS)}
    jobs: dict[int, Any] = {row["id"]: row for row in await connection.fetch(JOBS, JOB_NAME)}
    verdict.tasks, verdict.jobs = len(rows), len(jobs)
    verdict.recovered = sum(row["attempt"] > 1 and row["status"] == "COMPLETED" for row in rows.values())
    _judge_items(verdict, meant, rows)
    _judge_posted(verdict, meant, rows)
    _judge_redriven(verdict, meant, rows)
    _judge_jobs(verdict, meant, rows, jobs)
    _judge_seen(verdict, seen, rows)
    _judge_order(verdict, meant, seen, rows)
    _judge_times(verdict, meant, seen)
    verdict.ends = sorted(moment.at for moments in seen.values() for moment in moments if moment.event == "end")
    strikes = history.notes(directory, "strikes")
    verdict.recoveries, verdict.struck_again = await recoveries(connection, seen, strikes)
    verdict.slow = await explain(connection, [r for r in verdict.recoveries if r.seconds > MOST_RECOVERY_SECONDS])
    verdict.lost += [f"I9: {each}" for each in await differences(connection, clickhouse, meant)]
    for row in await connection.fetch(TWICE):
        verdict.accepted_twice.append(f"task {row['task_id']} was completed {row['times']} times")
    await _judge_leaders(verdict, connection)
    for row in await connection.fetch("SELECT id FROM outbox WHERE processed_at IS NULL"):
        verdict.outbox_left.append(f"I9: event {row['id']} waits in the outbox")
    found = await violations(connection, clickhouse)
    verdict.orphans += [each for each in found if each.startswith("I8")]
    verdict.violated += [each for each in found if not each.startswith("I8")]
    return verdict


async def violations(connection: Connection, clickhouse: Client) -> list[str]:
    """What the doctor finds, in both databases."""
    found = [
        f"{each.invariant}: {each.kind} {each.id}: {each.finding}"
        for each in await check_invariants(connection, grace_seconds=GRACE_SECONDS)
    ]
    return found + [
        f"{each.invariant}: {each.table} {each.finding}"
        for each in await disagreements(connection, clickhouse, orphan_seconds=0)
    ]


TASKS = "SELECT id, status::text, attempt, org_id::text, idempotency_key, job_id, type, error FROM tasks"
JOBS = """
    SELECT id, org_id::text, status::text, coalesce(trigger #>> '{payload,key}', substr(name, length($1) + 1)) AS key
    FROM jobs
"""
TWICE = "SELECT task_id, count(*) AS times FROM chaos.outcomes GROUP BY task_id HAVING count(*) > 1"
TERMS = "SELECT term, count(DISTINCT worker_id) AS holders FROM chaos.terms GROUP BY term HAVING count(DISTINCT worker_id) > 1"  # noqa: E501
EARLY = """
    SELECT t.term, f.term AS former
    FROM (SELECT *, lag(term) OVER (ORDER BY term) AS before FROM chaos.terms) AS t
    JOIN chaos.terms f ON f.term = t.before LEFT JOIN chaos.ends e ON e.term = f.term
    WHERE e.term IS NULL OR t.began_at < e.ended_at OR (t.began_at < e.until AND NOT e.stopped AND e.by <> $1)
"""
"""Terms that began before the former one was over; it may be over early for who has stopped, or resigned ($1)."""
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "DEAD_LETTER")


async def _judge_leaders(verdict: Verdict, connection: Connection) -> None:
    for row in await connection.fetch(TERMS):
        verdict.violated.append(f"I10: term {row['term']} was given to {row['holders']} leaders")
    for row in await connection.fetch(EARLY, statement("resign")):
        verdict.violated.append(f"I10: term {row['term']} began before term {row['former']} was over")


def _judge_items(verdict: Verdict, meant: list[dict[str, Any]], rows: dict[int, Any]) -> None:
    wanted: dict[str, tuple[str, str]] = {}
    told: dict[str, int] = {}
    for each in meant:
        if each.get("meant") == "items":
            wanted |= {key: (status, each["org"]) for key, status in each["keys"].items()}
        if each.get("heard") == "items":
            for key, task_id in each["ids"].items():
                if told.setdefault(key, task_id) != task_id:
                    verdict.duplicated.append(f"I5: item {key} was said to be task {told[key]} and task {task_id}")
    keys = Counter(row["idempotency_key"] for row in rows.values() if row["idempotency_key"])
    verdict.duplicated += [f"I5: there are {n} tasks with the key {key}" for key, n in keys.items() if n > 1]
    verdict.unexpected += [f"a task has the key {key}, which nobody used" for key in keys if key not in wanted]
    for key, task_id in told.items():
        row, (status, org) = rows.get(task_id), wanted[key]
        if row is None or row["status"] not in ENDED:
            verdict.lost.append(f"item {key}, task {task_id}: {row['status'] if row else 'is not there'}")
        elif row["status"] != status:
            verdict.unexpected.append(f"item {key}, task {task_id} is {row['status']}: {row['error']}")
        elif row["org_id"] != org:
            verdict.violated.append(f"I11: item {key} of org {org} belongs to {row['org_id']}")


def _judge_posted(verdict: Verdict, meant: list[dict[str, Any]], rows: dict[int, Any]) -> None:
    """Items that have no key of their own: those that clients heard of, and no others."""
    heard = {each["key"]: each["ids"] for each in meant if each.get("heard") == "posted"}
    told = {task_id for ids in heard.values() for task_id in ids}
    for task_id in told:
        status = rows[task_id]["status"] if task_id in rows else "is not there"
        if status not in ENDED:
            verdict.lost.append(f"item {task_id}: {status}")
        elif status != "COMPLETED":
            verdict.unexpected.append(f"item {task_id} is {status}")
    told |= {task_id for each in meant if each.get("meant") == "tasks" for task_id in each["ids"]}
    others = [id_ for id_, row in rows.items() if row["job_id"] is None and row["idempotency_key"] is None]
    strange = [task_id for task_id in others if task_id not in told]
    unanswered = sum(each["count"] for each in meant if each.get("meant") == "posted" and each["key"] not in heard)
    if len(strange) > unanswered:  # of those who were never answered, some may be there
        verdict.unexpected += [f"task {id_} has no job and no key, and nobody asked for it" for id_ in strange]


def _judge_redriven(verdict: Verdict, meant: list[dict[str, Any]], rows: dict[int, Any]) -> None:
    """What was dead and got another chance has used it."""
    chances = Counter(task_id for each in meant if each.get("heard") == "redriven" for task_id in each["ids"])
    for task_id, more in chances.items():
        attempts = rows[task_id]["attempt"] if task_id in rows else 0
        if attempts < (1 + more) * POISON_ATTEMPTS:
            verdict.lost.append(f"task {task_id} was given {more} more chances, and ran {attempts} times in all")


def _judge_times(verdict: Verdict, meant: list[dict[str, Any]], seen: dict[int, list[Seen]]) -> None:
    """Nothing began before its time."""
    ids = {key: id_ for each in meant if each.get("heard") == "items" for key, id_ in each["ids"].items()}
    for each in meant:
        for key in each.get("later", ()):
            began = min((m.at for m in seen.get(ids.get(key, 0), ()) if m.event == "begin"), default=each["not_before"])
            if began < each["not_before"]:
                verdict.disordered.append(f"item {key} began {each['not_before'] - began:.2f} s before its time")


def _judge_jobs(verdict: Verdict, meant: list[dict[str, Any]], rows: dict[int, Any], jobs: dict[int, Any]) -> None:
    wanted = {each["key"]: each for each in meant if each.get("meant") in ("job", "flow")}
    keys = Counter(job["key"] for job in jobs.values())
    verdict.duplicated += [f"I5: there are {n} jobs with the key {key}" for key, n in keys.items() if n > 1]
    verdict.unexpected += [f"job {id_} has the key {job['key']}, which nobody used" for id_, job in jobs.items()
                           if job["key"] not in wanted]  # fmt: skip
    for each in meant:
        if each.get("heard") not in ("job", "flow"):
            continue
        job, asked = jobs.get(each["job"]), wanted[each["key"]]
        if job is None or job["status"] not in ENDED:
            verdict.lost.append(f"job {each['job']}: {job['status'] if job else 'is not there'}")
        elif job["status"] not in asked.get("ends", ("COMPLETED",)):
            verdict.unexpected.append(f"job {each['job']} ({each['key']}) is {job['status']}")
        elif job["org_id"] != asked.get("org", job["org_id"]):
            verdict.violated.append(f"I11: job {each['job']} of org {asked['org']} belongs to {job['org_id']}")
        for task_id in asked.get("tasks", ()):
            row = rows.get(task_id)
            if row is None or row["status"] not in ENDED:
                verdict.lost.append(f"task {task_id} of job {each['job']}: {row['status'] if row else 'is not there'}")
    _judge_sizes(verdict, meant, wanted, Counter(row["job_id"] for row in rows.values()))


def _judge_sizes(
    verdict: Verdict, meant: list[dict[str, Any]], wanted: dict[str, Any], sizes: Counter[int | None]
) -> None:
    """Tasks that a job was given, and that its tasks have added: all of them, each once."""
    for each in meant:
        if each.get("heard") == "job" and sizes[each["job"]] != (total := wanted[each["key"]]["total"]):
            found = verdict.lost if sizes[each["job"]] < total else verdict.duplicated
            found.append(f"job {each['job']} ({each['key']}) has {sizes[each['job']]} tasks, and not {total}")


def _judge_seen(verdict: Verdict, seen: dict[int, list[Seen]], rows: dict[int, Any]) -> None:
    """Every accepted attempt ran to its end, and everything that ran was asked for, by the org that asked."""
    verdict.unexpected += [f"task {task_id} ran, and is not there" for task_id in seen if task_id not in rows]
    for task_id, row in rows.items():
        ran = seen.get(task_id, [])
        noted = row["type"].startswith("aaiclick.chaos.bodies.")
        ended = any(each.event == "end" and each.attempt == row["attempt"] for each in ran)
        if noted and row["status"] == "COMPLETED" and not ended:
            verdict.unexpected.append(f"task {task_id} is completed by attempt {row['attempt']}, which never ended")
        if any(each.org_id != row["org_id"] for each in ran):
            verdict.violated.append(f"I11: task {task_id} of org {row['org_id']} ran for another")
        last = max((each.attempt for each in ran), default=0)
        if last > row["attempt"]:
            verdict.violated.append(f"I2: task {task_id} ran as attempt {last}, and says {row['attempt']}")


def _judge_order(
    verdict: Verdict, meant: list[dict[str, Any]], seen: dict[int, list[Seen]], rows: dict[int, Any]
) -> None:
    heard = {each["key"] for each in meant if each.get("heard") == "job"}
    for each in meant:
        if each.get("meant") != "job" or each["key"] not in heard:
            continue
        for before, after in each["edges"]:
            accepted = rows[before]["attempt"] if before in rows else 0
            ended = [m.at for m in seen.get(before, ()) if m.event == "end" and m.attempt == accepted]
            began = [m.at for m in seen.get(after, ()) if m.event == "begin"]
            if began and (not ended or min(began) < max(ended)):
                verdict.disordered.append(f"task {after} began before task {before} had ended")
