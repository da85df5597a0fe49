"""Expected incidents and messages, from the failed tasks of a run and the messages that the sinks have received."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aaiclick.chaos.result import CheckResult
from aaiclick.orchestration.notifications.messages import MAX_LISTED

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

FAILURES = """
    SELECT t.org_id::text, j.name AS job, t.type, coalesce(t.error_fingerprint, '') AS fingerprint, EXISTS (
        SELECT FROM jobs l WHERE l.org_id = t.org_id AND l.name = j.name AND l.status = 'COMPLETED') AS recovered
    FROM tasks t LEFT JOIN jobs j ON j.id = t.job_id
    WHERE t.status IN ('FAILED', 'DEAD_LETTER')
"""
"""Tasks that have failed for good; `recovered`: a job of the same name has completed, which may close the incident."""
FAILED_JOBS = """
    SELECT org_id::text, name AS job FROM jobs j WHERE status = 'FAILED' AND NOT EXISTS (
        SELECT FROM tasks t WHERE t.job_id = j.id AND t.status IN ('FAILED', 'DEAD_LETTER'))
"""
"""Jobs that have failed without a failed task: they exceeded their time limit."""
INCIDENTS = """
    SELECT id, org_id::text, rule, job_name AS job, task_type AS type, coalesce(error_fingerprint, '') AS fingerprint,
        task_id IS NOT NULL AS of_task, closed_at IS NULL AS is_open, title, cause
    FROM incidents ORDER BY id
"""
NOTIFICATIONS = """
    SELECT incident_id, channel, event, task_id, delivered_at IS NOT NULL AS delivered FROM notifications ORDER BY id
"""
CHANNELS = "SELECT DISTINCT name FROM notification_channels ORDER BY name"
UNSETTLED = """
    SELECT (SELECT count(*) FROM incident_occurrences)
        + (SELECT count(*) FROM incidents WHERE opened_routed_at IS NULL)
        + (SELECT count(*) FROM incidents WHERE closed_at IS NOT NULL AND closed_routed_at IS NULL)
        + (SELECT count(*) FROM notifications WHERE delivered_at IS NULL)
"""
"""What the leader has still to count, plan or deliver."""

Key = tuple[str, str | None, str, str]


async def check_notifications(
    result: CheckResult, connection: Connection, messages: Sequence[Mapping[str, Any]]
) -> None:
    """Compare failed tasks, incidents, planned messages and received messages; needs rules, as of a run."""
    channels = [row["name"] for row in await connection.fetch(CHANNELS)]
    if not channels:
        return
    incidents = await connection.fetch(INCIDENTS)
    result.incidents, result.messages = len(incidents), len(messages)
    failed_jobs = [(row["org_id"], row["job"]) for row in await connection.fetch(FAILED_JOBS)]
    check_incidents(result, await connection.fetch(FAILURES), incidents, failed_jobs)
    check_messages(result, incidents, await connection.fetch(NOTIFICATIONS), messages, channels)


def check_incidents(
    result: CheckResult,
    failures: Iterable[Any],
    incidents: Iterable[Any],
    failed_jobs: Iterable[tuple[str, str | None]] = (),
) -> None:
    """Check that each distinct failure has exactly one open incident, and that nothing else is open.

    A job of the same name that has completed may have closed it. `failed_jobs`: org and name of jobs without a failed
    task.
    """
    expected_jobs = set(failed_jobs)
    announced_jobs: Counter[tuple[str, str | None]] = Counter()
    recovered: dict[Key, bool] = {}
    for failure in failures:
        key = _key(failure)
        recovered[key] = recovered.get(key, True) and failure["recovered"]
    opened: Counter[Key] = Counter()
    for incident in incidents:
        if incident["is_open"] and incident["of_task"]:
            opened[_key(incident)] += 1
        elif incident["is_open"] and (incident["org_id"], incident["job"]) in expected_jobs:
            announced_jobs[incident["org_id"], incident["job"]] += 1
        elif incident["is_open"]:
            result.unexpected.append(f"incident {incident['id']} is open: {incident['title']}: {incident['cause']}")
    for key, is_recovered in recovered.items():
        if not opened[key] and not is_recovered:
            result.lost.append(f"the failure {key} has no open incident")
    result.lost += [f"the failed job {job} has no open incident" for job in expected_jobs - announced_jobs.keys()]
    result.duplicated += [
        f"{count} incidents of the failure {key} are open"
        for key, count in [*opened.items(), *announced_jobs.items()]
        if count > 1
    ]


def _key(row: Mapping[str, Any]) -> Key:
    return row["org_id"], row["job"], row["type"], row["fingerprint"]


def check_messages(
    result: CheckResult,
    incidents: Iterable[Any],
    notifications: Iterable[Any],
    messages: Iterable[Any],
    channels: Sequence[str],
) -> None:
    """Check that each incident was announced once on each channel, and received by it.

    A message of a killed worker may be received twice, with the same id. A message that lists the maximum of incidents
    may be about others too.
    """
    events: Counter[tuple[int, str, str]] = Counter()
    deliveries: dict[tuple[int, str], set[int]] = defaultdict(set)
    for row in notifications:
        subject = f"the message '{row['event']}' about incident {row['incident_id']} on {row['channel']}"
        events[row["incident_id"], row["channel"], row["event"]] += 1
        deliveries[row["incident_id"], row["channel"]].add(row["task_id"])
        if not row["delivered"]:
            result.lost.append(f"{subject} was not delivered")
    received: dict[tuple[int, str], set[int]] = defaultdict(set)
    shortened: dict[str, set[int]] = defaultdict(set)
    for message in messages:
        if len(message["incidents"]) >= MAX_LISTED["email"]:
            shortened[message["channel"]].add(message["delivery"])
        for incident_id in message["incidents"]:
            received[incident_id, message["channel"]].add(message["delivery"])
    for incident in incidents:
        for channel in channels:
            key = incident["id"], channel
            count = events[*key, "opened"]
            if count != 1:
                findings = result.duplicated if count else result.lost
                findings.append(f"incident {key[0]} was announced {count} times on {channel}")
            if missing := deliveries[key] - received[key] - shortened[channel]:
                result.lost.append(f"{channel} has not received the messages {sorted(missing)} about incident {key[0]}")
            if added := received[key] - deliveries[key]:
                result.duplicated.append(f"{channel} has received the messages {sorted(added)} about incident {key[0]}")
