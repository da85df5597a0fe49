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

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aaiclick.chaos import expected, history
from aaiclick.chaos.flow import differences
from aaiclick.chaos.history import Seen
from aaiclick.chaos.load import FILE, JOB_NAME
from aaiclick.chaos.recoveries import explain, recoveries
from aaiclick.chaos.verdict import MOST_RECOVERY_SECONDS, Verdict
from aaiclick.data.client import Client
from aaiclick.orchestration.inventory import disagreements
from aaiclick.store.doctor import check_invariants
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

GRACE_SECONDS = 30.0

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
    expected.judge_items(verdict, meant, rows)
    expected.judge_posted(verdict, meant, rows)
    expected.judge_redriven(verdict, meant, rows)
    expected.judge_jobs(verdict, meant, rows, jobs)
    expected.judge_seen(verdict, seen, rows)
    expected.judge_order(verdict, meant, seen, rows)
    expected.judge_times(verdict, meant, seen)
    verdict.ends = sorted(moment.at for moments in seen.values() for moment in moments if moment.event == "end")
    strikes = history.notes(directory, "strikes")
    verdict.recoveries, verdict.struck_again = await recoveries(connection, seen, strikes)
    verdict.slow = await explain(connection, [r for r in verdict.recoveries if r.seconds > MOST_RECOVERY_SECONDS])
    verdict.lost += [f"I9: {each}" for each in await differences(connection, clickhouse, meant)]
    for row in await connection.fetch(TWICE):
        verdict.accepted_twice.append(f"task {row['task_id']} was completed {row['times']} times")
    await _judge_leaders(verdict, connection)
    for row in await connection.fetch("SELECT id, status::text FROM outbox"):
        verdict.outbox_left.append(f"I9: event {row['id']} is {row['status']} in the outbox")
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


async def _judge_leaders(verdict: Verdict, connection: Connection) -> None:
    for row in await connection.fetch(TERMS):
        verdict.violated.append(f"I10: term {row['term']} was given to {row['holders']} leaders")
    for row in await connection.fetch(EARLY, statement("resign")):
        verdict.violated.append(f"I10: term {row['term']} began before term {row['former']} was over")
