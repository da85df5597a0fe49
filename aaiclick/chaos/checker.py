"""Compares histories with PostgreSQL and ClickHouse: lost, duplicated, early and unrequested work.

| | check |
|---|---|
| I1 | everything that was acknowledged to a client exists, and has ended |
| I2, I3 | one success of each task, counted by a trigger of this run; findings of `aaiclick doctor` |
| I4 | no attempt began before its predecessors had ended or before its scheduled time, by the tasks' histories |
| I5 | one task and one job per idempotency key, with the expected number of tasks, whatever was sent twice |
| I6, I12 | findings of `aaiclick doctor`; exactly the poison tasks are dead letters |
| I10 | each term has one leader and begins after the previous one has ended, by a trigger of this run |
| I7, I8 | tables and references agree, before and after jobs release them; after two sweeps nothing is left |
| I9 | the outbox is empty; every acknowledged sale is in the reactive DAG's datasets exactly once |
| I11 | tasks ran for the org that they were submitted for |

Each distinct failure has exactly one open incident, which was announced once on every channel and received by it.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aaiclick.chaos import flow_control_oracle, history, incident_oracle, oracle
from aaiclick.chaos.approval_clients import DECISIONS
from aaiclick.chaos.dag_workload import find_differences
from aaiclick.chaos.history import STEPS, UNDONE_STEPS, AttemptEvent
from aaiclick.chaos.load_clients import CLIENT_EVENTS, JOB_NAME
from aaiclick.chaos.notification_sinks import MESSAGES
from aaiclick.chaos.recovery_times import explain_recoveries, find_recoveries
from aaiclick.chaos.result import MAX_RECOVERY_SECONDS, CheckResult
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient
from aaiclick.orchestration.table_audit import find_inconsistencies
from aaiclick.store.engine.invariants import check_invariants

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

GRACE_SECONDS = 30.0

TRIGGERS = """
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
"""Records outcomes and leaders in the transactions that change them; in a schema of its own, since every table of
`public` must have row-level security."""


async def check_run(connection: Connection, clickhouse: ClickHouseClient, directory: Path) -> CheckResult:
    """Compare the histories with the databases, after all work is done."""
    result = CheckResult()
    records = history.read_events(directory, CLIENT_EVENTS)
    events_by_task: dict[int, list[AttemptEvent]] = defaultdict(list)
    for event in history.read_attempts(directory):
        events_by_task[event.task_id].append(event)
    rows: dict[int, Any] = {row["id"]: row for row in await connection.fetch(TASKS)}
    jobs: dict[int, object] = {row["id"]: row for row in await connection.fetch(JOBS, JOB_NAME)}
    result.tasks, result.jobs = len(rows), len(jobs)
    result.recovered = sum(row["attempt"] > 1 and row["status"] == "COMPLETED" for row in rows.values())
    oracle.check_items(result, records, rows)
    oracle.check_posted(result, records, rows)
    oracle.check_redriven(result, records, rows)
    oracle.check_jobs(result, records, rows, jobs)
    oracle.check_attempts(result, events_by_task, rows)
    oracle.check_order(result, records, events_by_task, rows)
    oracle.check_times(result, records, events_by_task)
    steps = history.read_events(directory, STEPS)
    oracle.check_sagas(result, steps, history.read_events(directory, UNDONE_STEPS), rows)
    await flow_control_oracle.check_flow(result, connection, directory, records)
    decided = {row["id"]: row["decided_by"] for row in await connection.fetch(DECIDED)}
    await incident_oracle.check_notifications(result, connection, history.read_events(directory, MESSAGES))
    oracle.check_decisions(result, history.read_events(directory, DECISIONS), decided)
    for row in await connection.fetch(CHILDREN):
        result.duplicated.append(f"task {row['id']} has {row['children']} child jobs, {row['completed']} completed")
    result.ends = sorted(event.at for events in events_by_task.values() for event in events if event.event == "end")
    faults = history.read_events(directory, "faults")
    result.recoveries, result.faulted_again = await find_recoveries(connection, events_by_task, faults)
    slow = [recovery for recovery in result.recoveries if recovery.seconds > MAX_RECOVERY_SECONDS]
    result.slow = await explain_recoveries(connection, slow)
    result.lost += [f"I9: {difference}" for difference in await find_differences(connection, clickhouse, records)]
    for row in await connection.fetch(TWICE):
        result.accepted_twice.append(f"task {row['task_id']} was completed {row['times']} times")
    await _check_leaders(result, connection)
    for row in await connection.fetch("SELECT id, status::text FROM outbox"):
        result.outbox_left.append(f"I9: event {row['id']} is {row['status']} in the outbox")
    violations = await find_violations(connection, clickhouse)
    result.orphans += [violation for violation in violations if violation.startswith("I8")]
    result.violated += [violation for violation in violations if not violation.startswith("I8")]
    return result


async def find_violations(connection: Connection, clickhouse: ClickHouseClient) -> list[str]:
    """Return the findings of `aaiclick doctor` in both databases."""
    violations = [
        f"{violation.invariant}: {violation.kind} {violation.id}: {violation.finding}"
        for violation in await check_invariants(connection, grace_seconds=GRACE_SECONDS)
    ]
    return violations + [
        f"{inconsistency.invariant}: {inconsistency.table} {inconsistency.finding}"
        for inconsistency in await find_inconsistencies(connection, clickhouse, orphan_seconds=0)
    ]


TASKS = """
    SELECT id, status::text, attempt, org_id::text, idempotency_key, job_id, type, error, cached_from, completed_at
    FROM tasks
"""
JOBS = """
    SELECT id, org_id::text, status::text, error,
        coalesce(trigger #>> '{payload,key}', substr(name, length($1) + 1)) AS key
    FROM jobs WHERE parent_task_id IS NULL AND schedule_id IS NULL
"""
CHILDREN = """
    SELECT t.id, count(j.id) AS children, count(j.completed_at) AS completed
    FROM tasks t LEFT JOIN jobs j ON j.parent_task_id = t.id AND j.org_id = t.org_id
    WHERE t.type = 'aaiclick.chaos.tasks.submit_child' AND t.status = 'COMPLETED'
    GROUP BY t.id HAVING count(j.id) <> 1 OR count(*) FILTER (WHERE j.status = 'COMPLETED') <> 1
"""
DECIDED = "SELECT id, decided_by FROM approvals"
TWICE = """
    SELECT o.task_id, count(*) AS times FROM chaos.outcomes o LEFT JOIN tasks t ON t.id = o.task_id
    GROUP BY o.task_id, CASE WHEN t.trigger_rule IN ('failed', 'ended') THEN o.attempt END HAVING count(*) > 1
"""
"""Tasks that completed twice; handlers of a job that was restarted complete once more, by a later attempt."""
TERMS = "SELECT term, count(DISTINCT worker_id) AS holders FROM chaos.terms GROUP BY term HAVING count(DISTINCT worker_id) > 1"  # noqa: E501
EARLY = """
    SELECT t.term, f.term AS former
    FROM (SELECT *, lag(term) OVER (ORDER BY term) AS before FROM chaos.terms) AS t
    JOIN chaos.terms f ON f.term = t.before LEFT JOIN chaos.ends e ON e.term = f.term
    WHERE e.term IS NULL OR t.began_at < e.ended_at OR (t.began_at < e.until AND NOT e.stopped)
"""
"""Terms that began before the previous one ended; a leader that stopped may end its term early."""


async def _check_leaders(result: CheckResult, connection: Connection) -> None:
    for row in await connection.fetch(TERMS):
        result.violated.append(f"I10: term {row['term']} had {row['holders']} leaders")
    for row in await connection.fetch(EARLY):
        result.violated.append(f"I10: term {row['term']} began before term {row['former']} ended")
