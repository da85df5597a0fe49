"""Incidents: opened in the transaction that causes them, counted and closed by the leader.

An incident is identified by organisation, rule and fingerprint, and a unique index admits one open incident of each. A
transaction that finds it open appends an occurrence and locks nothing, so a hundred thousand failures with the same
fingerprint neither wait for each other nor for the row; `add_occurrences` adds them to the count. An incident that is
closed between the two is opened again by it. The statements run last in their transactions, in the order of keys.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import failpoints
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.store.enums import NOTIFICATION_QUEUE, IncidentRule, Severity
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

SEVERITIES: dict[IncidentRule, Severity] = {
    "job_failed": "error",
    "task_failed": "error",
    "data_test_failed": "error",
    "alert_raised": "warning",
    "deadline_missed": "warning",
    "source_dead": "critical",
    "start_failed": "error",
    "event_unroutable": "error",
    "channel_failing": "error",
}
"""Severity by rule, unless the cause has its own."""

DATA_TEST_ERROR = "DataTestError:"
"""Prefix of the fingerprint of tasks that a data test has failed: the name of the error class."""

FAILED_STATUSES = ("FAILED", "DEAD_LETTER", "PASSED_OVER", "PASSED_AGAIN")
"""Final failures, by the statuses that `fail_tasks` returns."""

NOTIFICATION_KEY = "notification:"
"""Prefix of the concurrency keys of deliveries; the channel follows."""

CHANNEL_FAILURES = 3
"""After so many failed deliveries of one notification its channel is failing."""

MAX_CAUSE_CHARACTERS = 4_000
MAX_TITLE_CHARACTERS = 300
OCCURRENCE_BATCH_SIZE = 10_000
CHECK_BATCH_SIZE = 500
DEAD_SOURCE_SECONDS = 300.0
"""A source that has been Dead for so long opens an incident; its retries need not."""

LAST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that opens an incident, or counts as another occurrence of the open one.

    `title` is visible to all readers of the organisation, so it contains no data; `cause` only to readers of the task.
    """

    org_id: UUID
    rule: IncidentRule
    fingerprint: str
    severity: Severity
    title: str
    cause: str | None = None
    dag_name: str | None = None
    job_name: str | None = None
    task_type: str | None = None
    error_fingerprint: str | None = None
    job_id: int | None = None
    task_id: int | None = None

    @property
    def key(self) -> tuple[UUID, str, str]:
        return self.org_id, self.rule, self.fingerprint


def make_fingerprint(*parts: object) -> str:
    """A short hash of what identifies an incident within its rule. It reveals no data."""
    text = "\x00".join("" if part is None else str(part) for part in parts)
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:16]


async def record_incidents(
    connection: Connection, occurrences: Iterable[Occurrence], *, now: datetime | None = None
) -> int:
    """Open or count incidents, in the caller's transaction; returns how many were opened."""
    listed = list(occurrences)
    if not listed:
        return 0
    counts = Counter(occurrence.key for occurrence in listed)
    last = {occurrence.key: occurrence for occurrence in listed}
    rows = [(*astuple(last[key]), counts[key]) for key in sorted(last, key=str)]
    columns = zip(*rows, strict=True)
    return int(await connection.fetchval(statement("record_incidents"), *(list(values) for values in columns), now))


async def record_failed_tasks(
    connection: Connection, ended: Sequence[asyncpg.Record], now: datetime | None = None
) -> None:
    """Open incidents of tasks that have failed for good, and of channels: rows of `fail_tasks`, in its transaction."""
    ids = [row["id"] for row in ended if row["status"] in FAILED_STATUSES or _is_retried_delivery(row)]
    if ids:
        rows = await connection.fetch(statement("list_failed_tasks"), ids, CHANNEL_FAILURES)
        await record_incidents(connection, [to_occurrence(row) for row in rows], now=now)


def _is_retried_delivery(row: asyncpg.Record) -> bool:
    return row["status"] == "RETRY" and row["queue"] == NOTIFICATION_QUEUE


def to_occurrence(row: asyncpg.Record) -> Occurrence:
    """The incident of a failed task, a row of `list_failed_tasks`."""
    rule = _rule_of_task(row)
    job, task_type, error = row["job_name"], row["type"], row["error_fingerprint"] or ""
    channel = (row["concurrency_key"] or "").removeprefix(NOTIFICATION_KEY)
    titles: dict[IncidentRule, str] = {
        "channel_failing": f"Notifications to the channel {channel} fail",
        "data_test_failed": f"A data test of {task_type} failed" + ("" if job is None else f" in job {job}"),
        "source_dead": f"The source {task_type} has stopped",
        "job_failed": f"Job {job}: task {task_type} failed",
        "task_failed": f"Task {task_type} failed" + ("" if job is None else f" in job {job}"),
    }
    key = (channel,) if rule == "channel_failing" else (job, task_type, error)
    return Occurrence(
        row["org_id"], rule, make_fingerprint(*key), SEVERITIES[rule], titles[rule][:MAX_TITLE_CHARACTERS],
        (row["error"] or "")[-MAX_CAUSE_CHARACTERS:] or None, row["dag_name"], job,
        channel if rule == "channel_failing" else task_type, error or None,
        row["job_id"], row["id"],
    )  # fmt: skip


def _rule_of_task(row: asyncpg.Record) -> IncidentRule:
    if row["queue"] == NOTIFICATION_QUEUE:
        return "channel_failing"
    if (row["error_fingerprint"] or "").startswith(DATA_TEST_ERROR):
        return "data_test_failed"
    if row["is_always_on"]:
        return "source_dead"
    return "job_failed" if row["job_id"] is not None and not row["passed_over"] else "task_failed"


async def record_job_timeout(
    connection: Connection, org_id: UUID, job_id: int, job_name: str, error: str, now: datetime | None = None
) -> None:
    """Open the incident of a job that exceeded its time limit, in the transaction that ends it."""
    occurrence = Occurrence(
        org_id, "job_failed", make_fingerprint(job_name, "timeout"), SEVERITIES["job_failed"],
        f"Job {job_name}: {error}"[:MAX_TITLE_CHARACTERS], error, job_name=job_name, job_id=job_id,
    )  # fmt: skip
    await record_incidents(connection, [occurrence], now=now)


async def record_unroutable_event(connection: Connection, event_id: int, now: datetime | None = None) -> None:
    """Open the incident of an event that has failed, in the transaction that fails it.

    Its texts contain no data, like the error of its job: readers may not be allowed to read the dataset.
    """
    row = await connection.fetchrow(statement("get_job_of_event"), event_id)
    if row is None:
        return
    job = row["name"]
    occurrence = Occurrence(
        row["org_id"], "event_unroutable", make_fingerprint(job), SEVERITIES["event_unroutable"],
        f"Events of job {job} cannot be routed"[:MAX_TITLE_CHARACTERS],
        f"Event {event_id} could not be routed. See: aaiclick events ls", row["dag_name"], job, job_id=row["job_id"],
    )  # fmt: skip
    await record_incidents(connection, [occurrence], now=now)


async def record_failed_start(
    connection: Connection,
    org_id: UUID,
    name: str,
    error: str,
    *,
    schedule_id: object = None,
    dag_name: str | None = None,
    now: datetime | None = None,
) -> None:
    """Open the incident of a schedule, or a source of a DAG, that could not be started."""
    label = f"source {name}" if schedule_id is None else f"schedule {name}"
    occurrence = Occurrence(
        org_id, "start_failed", make_fingerprint(name) if schedule_id is None else str(schedule_id),
        SEVERITIES["start_failed"], f"The {label} cannot be started"[:MAX_TITLE_CHARACTERS],
        error[:MAX_CAUSE_CHARACTERS], dag_name, task_type=name,
    )  # fmt: skip
    await record_incidents(connection, [occurrence], now=now)


async def record_dead_sources(connection: Connection, *, now: datetime | None = None) -> int:
    """Open incidents of sources that have been Dead for DEAD_SOURCE_SECONDS; returns how many."""
    rows = await connection.fetch(statement("list_dead_sources"), DEAD_SOURCE_SECONDS, now)
    occurrences: list[Occurrence] = []
    for row in rows:
        name = f"{row['dag_name']}.{row['name']}"
        occurrences.append(
            Occurrence(
                row["org_id"], "source_dead", make_fingerprint(name), SEVERITIES["source_dead"],
                f"The source {name} does not run"[:MAX_TITLE_CHARACTERS],
                "No worker has run it since its last failure.", row["dag_name"], task_type=name,
            )
        )  # fmt: skip
    return await record_incidents(connection, occurrences, now=now)


async def record_late_datasets(connection: Connection, *, now: datetime | None = None) -> int:
    """Open incidents of datasets that have become late since the last pass; returns how many.

    Their texts name the definition that writes the dataset: readers may not be allowed to see the dataset.
    """
    async with failpoints.transaction(connection, "record_late_datasets"):
        rows = await connection.fetch(statement("take_late_datasets"), CHECK_BATCH_SIZE, now)
        return await record_incidents(connection, [_late_dataset(row) for row in rows], now=now)


def _late_dataset(row: asyncpg.Record) -> Occurrence:
    """The incident of a row of `take_late_datasets`; the id of the dataset is its fingerprint."""
    name = f"{row['dag']}.{row['definition']}"
    policy = "by its deadline" if row["max_age_seconds"] is None else f"for {row['max_age_seconds']} seconds"
    return Occurrence(
        row["org_id"], "deadline_missed", str(row["dataset_uuid"]), SEVERITIES["deadline_missed"],
        f"Output {row['number'] + 1} of {name} is late"[:MAX_TITLE_CHARACTERS],
        f"It was not updated {policy}: due at {row['due_at']:%Y-%m-%d %H:%M:%S} UTC. "
        "'aaiclick datasets freshness' names the causes.", row["dag"], task_type=name,
    )  # fmt: skip


async def record_overdue_jobs(connection: Connection, *, now: datetime | None = None) -> int:
    """Open incidents of jobs that have become overdue since the last pass; returns how many."""
    async with failpoints.transaction(connection, "record_overdue_jobs"):
        rows = await connection.fetch(statement("take_overdue_jobs"), CHECK_BATCH_SIZE, now)
        return await record_incidents(connection, [_overdue_job(row) for row in rows], now=now)


def _overdue_job(row: asyncpg.Record) -> Occurrence:
    name = row["name"]
    return Occurrence(
        row["org_id"], "deadline_missed", make_fingerprint(name, "deadline"), SEVERITIES["deadline_missed"],
        f"Job {name} is overdue"[:MAX_TITLE_CHARACTERS],
        f"Job {row['id']} was due at {row['due_at']:%Y-%m-%d %H:%M:%S} UTC. See: aaiclick jobs show {row['id']}",
        row["dag_name"], name, job_id=row["id"],
    )  # fmt: skip


async def close_incident_of(
    connection: Connection, org_id: UUID, rule: IncidentRule, fingerprint: str, *, now: datetime | None = None
) -> bool:
    """Close the incident of a cause that reports its own end, in the caller's transaction."""
    return await connection.fetchval(statement("close_incident_of_key"), org_id, rule, fingerprint, now) is not None


async def has_incident_work(connection: Connection, *, now: datetime | None = None) -> bool:
    """Whether a pass of the leader has something to do."""
    return await connection.fetchval(statement("has_incident_work"), now)


async def add_occurrences(connection: Connection) -> int:
    """Add waiting occurrences to the counts of their incidents; returns how many there were."""
    async with failpoints.statement("add_occurrences"):
        return int(await connection.fetchval(statement("add_occurrences"), OCCURRENCE_BATCH_SIZE, MAX_CAUSE_CHARACTERS))


async def close_recovered(
    connection: Connection, *, after: int = 0, quiet_seconds: float, now: datetime | None = None
) -> tuple[int, int]:
    """Close incidents that are over, among the next CHECK_BATCH_SIZE after an id; returns how many, and the last id.

    The last id is 0 after the last incident: the next pass begins at the first again.
    """
    async with failpoints.statement("close_recovered"):
        row = await connection.fetchrow(
            statement("close_recovered_incidents"), after, CHECK_BATCH_SIZE, quiet_seconds, now
        )
    assert row is not None  # noqa: S101  (aggregates)
    return row["closed"], row["last_id"] or 0


async def list_incidents(
    connection: Connection,
    org_id: UUID,
    *,
    before: int = LAST_ID,
    limit: int = 100,
    acknowledged: bool | None = None,
    rule: str | None = None,
    with_closed: bool = False,
) -> list[asyncpg.Record]:
    """List incidents, newest first."""
    return await connection.fetch(statement("list_incidents"), org_id, before, limit, acknowledged, rule, with_closed)


async def get_incident(connection: Connection, org_id: UUID, incident_id: int) -> asyncpg.Record:
    """An incident; raises NotFoundError."""
    row = await connection.fetchrow(statement("get_incident"), org_id, incident_id)
    if row is None:
        raise NotFoundError(f"There is no incident {incident_id}.", remedy="'aaiclick incidents ls' lists them.")
    return row


async def acknowledge_incident(connection: Connection, org_id: UUID, incident_id: int, by: str) -> asyncpg.Record:
    """Acknowledge an open incident: it is not escalated any more."""
    return await _change_incident(connection, statement("acknowledge_incident"), org_id, incident_id, by)


async def snooze_incident(connection: Connection, org_id: UUID, incident_id: int, seconds: float) -> asyncpg.Record:
    """Send no messages about an open incident for some time."""
    return await _change_incident(connection, statement("snooze_incident"), org_id, incident_id, seconds)


async def close_incident(connection: Connection, org_id: UUID, incident_id: int, by: str) -> asyncpg.Record:
    """Close an open incident; the next occurrence opens another."""
    return await _change_incident(connection, statement("close_incident"), org_id, incident_id, by)


async def _change_incident(
    connection: Connection, query: str, org_id: UUID, incident_id: int, value: object
) -> asyncpg.Record:
    row = await connection.fetchrow(query, org_id, incident_id, value)
    if row is None:
        closed = await get_incident(connection, org_id, incident_id)
        raise ConflictError(f"The incident {incident_id} is closed.", remedy=f"It was closed by {closed['closed_by']}.")
    return row
