"""Expected effects of waits, limits and schedules, from the histories and the database."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from aaiclick.chaos.flow_control_clients import RATE, RATE_KEY, SCHEDULE_SECONDS
from aaiclick.chaos.history import BATCHED, DEBOUNCED, FINAL_TASKS, read_events
from aaiclick.chaos.result import CheckResult

if TYPE_CHECKING:
    from pathlib import Path

    from aaiclick.store.postgres_connections import Connection

RATED = """
    SELECT t.org_id::text, c.claimed_at FROM tasks t CROSS JOIN LATERAL (
        SELECT t.claimed_at WHERE t.attempt > 0
        UNION SELECT a.claimed_at FROM task_attempts a WHERE a.task_id = t.id) c
    WHERE t.rate_key = $1 AND c.claimed_at IS NOT NULL ORDER BY c.claimed_at
"""
"""Every claim of a rate key."""

OVERLAPPING = """
    WITH spans AS (
        SELECT j.id, j.org_id, j.name, j.concurrency, j.completed_at AS ended,
            min(least(t.claimed_at, (SELECT min(a.claimed_at) FROM task_attempts a WHERE a.task_id = t.id))) AS began
        FROM jobs j JOIN tasks t ON t.job_id = j.id AND t.type <> 'wait_for_turn'
        WHERE j.concurrency IS NOT NULL GROUP BY j.id
    )
    SELECT s.id, s.concurrency, count(*) AS jobs FROM spans s JOIN spans o ON o.org_id = s.org_id AND o.name = s.name
    WHERE o.began <= s.began AND (o.ended IS NULL OR o.ended > s.began + interval '1 second')
    GROUP BY s.id, s.concurrency HAVING count(*) > s.concurrency
"""
"""Limited jobs that began while too many others ran. claimed_at is slightly before the snapshot of the claim: hence a
tolerance of a second."""

STARTED = """
    SELECT s.name, r.nominal, count(*) AS runs FROM schedules s CROSS JOIN LATERAL (
        SELECT j.trigger ->> 'nominal' AS nominal FROM jobs j WHERE j.schedule_id = s.id
        UNION ALL
        SELECT substr(t.idempotency_key, length('schedule:' || s.id || ':') + 1) FROM tasks t
        WHERE starts_with(t.idempotency_key, 'schedule:' || s.id || ':')) r
    GROUP BY s.name, r.nominal ORDER BY s.name, r.nominal
"""


async def check_flow(
    result: CheckResult, connection: Connection, directory: Path, records: list[dict[str, Any]]
) -> None:
    check_finals(result, records, read_events(directory, FINAL_TASKS))
    check_debounced(result, records, read_events(directory, DEBOUNCED))
    check_merged(result, records, read_events(directory, DEBOUNCED))
    check_batches(result, read_events(directory, BATCHED))
    check_rates(result, [(row["org_id"], row["claimed_at"]) for row in await connection.fetch(RATED, RATE_KEY)])
    for row in await connection.fetch(OVERLAPPING):
        result.violated.append(f"job {row['id']} began as one of {row['jobs']} jobs, {row['concurrency']} are allowed")
    check_schedules(result, [(row["name"], row["nominal"], row["runs"]) for row in await connection.fetch(STARTED)])


def check_finals(result: CheckResult, records: list[dict[str, Any]], ran: list[dict[str, Any]]) -> None:
    """Check that the final tasks of each acknowledged job ran; each success is counted elsewhere."""
    acknowledged = {record["key"] for record in records if record.get("acknowledged") == "job"}
    keys = {record["key"] for record in ran}
    for record in records:
        if record.get("requested") == "job" and record["key"] in acknowledged:
            missing = [final for final in record.get("finals", ()) if final not in keys]
            result.lost += [f"the final task {final} of job {record['key']} did not run" for final in missing]


def check_debounced(result: CheckResult, records: list[dict[str, Any]], ran: list[dict[str, Any]]) -> None:
    """Check that the last acknowledged payload of each key ran, or a later one that was requested."""
    last: dict[str, int] = {}
    for record in records:
        if record.get("acknowledged") == "debounced":
            last[record["key"]] = max(record["number"], last.get(record["key"], 0))
    for key, number in last.items():
        newest = max((record["number"] for record in ran if record["key"] == key), default=0)
        if newest < number:
            result.lost.append(f"payload {number} of the debounced key {key!r} did not run, the last was {newest}")


def check_merged(result: CheckResult, records: list[dict[str, Any]], ran: list[dict[str, Any]]) -> None:
    """Check that every acknowledged payload ran."""
    pairs = {(record["key"], record["number"]) for record in ran}
    for record in records:
        if record.get("acknowledged") == "merged" and (record["key"], record["number"]) not in pairs:
            result.lost.append(f"payload {record['number']} of the merged key {record['key']!r} did not run")


def check_batches(result: CheckResult, ran: list[dict[str, Any]]) -> None:
    """Check that no item is twice in one call."""
    for record in ran:
        if len(set(record["names"])) != len(record["names"]):
            result.duplicated.append(f"a batch has an item twice: {sorted(record['names'])}")


def check_rates(result: CheckResult, claims: list[tuple[str, datetime]]) -> None:
    """Check that no period has more claims than its rate allows."""
    allowed, seconds = (int(part) for part in RATE.split("/"))
    times: dict[str, list[datetime]] = defaultdict(list)
    for org, claimed_at in claims:
        times[org].append(claimed_at)
    for org, claimed in times.items():
        for first, excess in zip(claimed, claimed[allowed:], strict=False):
            if excess - first < timedelta(seconds=seconds):
                result.violated.append(f"org {org}: more than {allowed} claims of a rate in {seconds} s from {first}")


def check_schedules(result: CheckResult, runs: list[tuple[str, str, int]]) -> None:
    """Check that each nominal time between the first and the last one has one run."""
    previous: dict[str, datetime] = {}
    for name, nominal, count in runs:
        moment = datetime.fromisoformat(nominal)
        if count != 1:
            result.duplicated.append(f"schedule {name!r} has {count} runs of {nominal}")
        if name in previous and moment - previous[name] != timedelta(seconds=SCHEDULE_SECONDS):
            result.lost.append(f"schedule {name!r} has no run between {previous[name]} and {nominal}")
        previous[name] = moment
