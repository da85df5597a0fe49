"""Expected states of tasks and jobs, from the histories of clients and tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from aaiclick.chaos.history import AttemptEvent
from aaiclick.chaos.load_clients import POISON_ATTEMPTS, TASK_MODULE
from aaiclick.chaos.result import CheckResult
from aaiclick.store.engine import notification_deliveries

GENERATED_KEYS = ("schedule:", "debounce:")
"""Beginnings of keys that the product makes."""
GENERATED_TYPES = (f"{TASK_MODULE}.run_debounced", f"{TASK_MODULE}.run_merged", notification_deliveries.TASK_TYPE)
"""Types of items that no client has requested by itself."""
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "DEAD_LETTER", "SKIPPED")


def check_items(result: CheckResult, records: list[dict[str, Any]], rows: dict[int, Any]) -> None:
    expected: dict[str, tuple[str, str]] = {}
    acknowledged: dict[str, int] = {}
    for record in records:
        if record.get("requested") == "items":
            expected |= {key: (status, record["org"]) for key, status in record["keys"].items()}
        if record.get("acknowledged") == "items":
            for key, task_id in record["ids"].items():
                if acknowledged.setdefault(key, task_id) != task_id:
                    result.duplicated.append(
                        f"I5: item {key} was acknowledged as task {acknowledged[key]} and as task {task_id}"
                    )
    keys = Counter(row["idempotency_key"] for row in rows.values() if row["idempotency_key"])
    result.duplicated += [f"I5: there are {n} tasks with the key {key}" for key, n in keys.items() if n > 1]
    unknown = [key for key in keys if key not in expected and not key.startswith(GENERATED_KEYS)]
    result.unexpected += [f"a task has the key {key}, which no client used" for key in unknown]
    for key, task_id in acknowledged.items():
        row, (status, org) = rows.get(task_id), expected[key]
        if row is None or row["status"] not in ENDED:
            result.lost.append(f"item {key}, task {task_id}: {row['status'] if row else 'missing'}")
        elif row["status"] != status:
            result.unexpected.append(f"item {key}, task {task_id} is {row['status']}: {row['error']}")
        elif row["org_id"] != org:
            result.violated.append(f"I11: item {key} of org {org} belongs to {row['org_id']}")


def check_posted(result: CheckResult, records: list[dict[str, Any]], rows: dict[int, Any]) -> None:
    """Check items without a key: exactly those that clients received an answer for."""
    acknowledged = {record["key"]: record["ids"] for record in records if record.get("acknowledged") == "posted"}
    known_ids = {task_id for ids in acknowledged.values() for task_id in ids}
    for task_id in known_ids:
        status = rows[task_id]["status"] if task_id in rows else "missing"
        if status not in ENDED:
            result.lost.append(f"item {task_id}: {status}")
        elif status != "COMPLETED":
            result.unexpected.append(f"item {task_id} is {status}")
    known_ids |= {task_id for record in records if record.get("requested") == "tasks" for task_id in record["ids"]}
    without_key = [
        id_ for id_, row in rows.items()
        if row["job_id"] is None and row["idempotency_key"] is None and row["type"] not in GENERATED_TYPES
    ]  # fmt: skip
    unexplained = [task_id for task_id in without_key if task_id not in known_ids]
    unanswered = sum(
        record["count"]
        for record in records
        if record.get("requested") == "posted" and record["key"] not in acknowledged
    )
    if len(unexplained) > unanswered:  # requests without an answer may have been executed
        result.unexpected += [f"task {id_} has no job and no key, and no client requested it" for id_ in unexplained]


def check_redriven(result: CheckResult, records: list[dict[str, Any]], rows: dict[int, Any]) -> None:
    """Check that redriven dead letters used their additional attempts."""
    redrives = Counter(
        task_id for record in records if record.get("acknowledged") == "redriven" for task_id in record["ids"]
    )
    for task_id, count in redrives.items():
        attempts = rows[task_id]["attempt"] if task_id in rows else 0
        if attempts < (1 + count) * POISON_ATTEMPTS:
            result.lost.append(f"task {task_id} was redriven {count} times, but ran only {attempts} times")


def check_times(
    result: CheckResult, records: list[dict[str, Any]], events_by_task: dict[int, list[AttemptEvent]]
) -> None:
    """Check that nothing began before its scheduled time."""
    ids = {
        key: id_ for record in records if record.get("acknowledged") == "items" for key, id_ in record["ids"].items()
    }
    for record in records:
        for key in record.get("later", ()):
            began = min(
                (event.at for event in events_by_task.get(ids.get(key, 0), ()) if event.event == "begin"),
                default=record["not_before"],
            )
            if began < record["not_before"]:
                result.disordered.append(f"item {key} began {record['not_before'] - began:.2f} s before its time")


def check_jobs(result: CheckResult, records: list[dict[str, Any]], rows: dict[int, Any], jobs: dict[int, Any]) -> None:
    requests = {record["key"]: record for record in records if record.get("requested") in ("job", "flow")}
    cancelled = {record["key"] for record in records if record.get("acknowledged") == "cancelled"}
    keys = Counter(job["key"] for job in jobs.values())
    result.duplicated += [f"I5: there are {n} jobs with the key {key}" for key, n in keys.items() if n > 1]
    result.unexpected += [f"job {id_} has the key {job['key']}, which no client used" for id_, job in jobs.items()
                           if job["key"] not in requests]  # fmt: skip
    for record in records:
        if record.get("acknowledged") not in ("job", "flow"):
            continue
        job, request = jobs.get(record["job"]), requests[record["key"]]
        if job is None or job["status"] not in ENDED:
            result.lost.append(f"job {record['job']}: {job['status'] if job else 'missing'}")
        elif job["status"] not in (
            ("CANCELLED",) if record["key"] in cancelled else request.get("ends", ("COMPLETED",))
        ):
            result.unexpected.append(f"job {record['job']} ({record['key']}) is {job['status']}: {job['error']}")
        elif job["org_id"] != request.get("org", job["org_id"]):
            result.violated.append(f"I11: job {record['job']} of org {request['org']} belongs to {job['org_id']}")
        for task_id in request.get("tasks", ()):
            row = rows.get(task_id)
            if row is None or row["status"] not in ENDED:
                result.lost.append(f"task {task_id} of job {record['job']}: {row['status'] if row else 'missing'}")
    _check_sizes(result, records, requests, Counter(row["job_id"] for row in rows.values()))


def _check_sizes(
    result: CheckResult, records: list[dict[str, Any]], requests: dict[str, Any], sizes: Counter[int | None]
) -> None:
    """Check the number of tasks of each job: submitted and added ones, each once."""
    for record in records:
        if record.get("acknowledged") != "job" or requests[record["key"]]["total"] is None:
            continue
        if sizes[record["job"]] != (total := requests[record["key"]]["total"]):
            findings = result.lost if sizes[record["job"]] < total else result.duplicated
            findings.append(
                f"job {record['job']} ({record['key']}) has {sizes[record['job']]} tasks instead of {total}"
            )


def check_attempts(result: CheckResult, events_by_task: dict[int, list[AttemptEvent]], rows: dict[int, Any]) -> None:
    """Check that accepted attempts ran to their end, and that every run was requested, by the same org."""
    result.unexpected += [
        f"task {task_id} ran, but does not exist" for task_id in events_by_task if task_id not in rows
    ]
    for task_id, row in rows.items():
        events = events_by_task.get(task_id, [])
        is_recorded = row["type"].startswith("aaiclick.chaos.tasks.")
        ended = any(event.event == "end" and event.attempt == row["attempt"] for event in events)
        if is_recorded and row["status"] == "COMPLETED" and not ended and row["cached_from"] is None:
            result.unexpected.append(f"task {task_id} is completed by attempt {row['attempt']}, which never ended")
        if any(event.org_id != row["org_id"] for event in events):
            result.violated.append(f"I11: task {task_id} of org {row['org_id']} ran for another org")
        last = max((event.attempt for event in events), default=0)
        if last > row["attempt"]:
            result.violated.append(f"I2: task {task_id} ran as attempt {last}, but has attempt {row['attempt']}")


def check_order(
    result: CheckResult,
    records: list[dict[str, Any]],
    events_by_task: dict[int, list[AttemptEvent]],
    rows: dict[int, Any],
) -> None:
    acknowledged = {record["key"] for record in records if record.get("acknowledged") == "job"}
    for record in records:
        if record.get("requested") != "job" or record["key"] not in acknowledged:
            continue
        for predecessor, dependent in record["edges"]:
            accepted = rows[predecessor]["attempt"] if predecessor in rows else 0
            ended = [
                event.at
                for event in events_by_task.get(predecessor, ())
                if event.event == "end" and event.attempt == accepted
            ]
            began = [event.at for event in events_by_task.get(dependent, ()) if event.event == "begin"]
            if predecessor in rows and rows[predecessor]["cached_from"] is not None:  # its function did not run
                continue
            if began and (not ended or min(began) < max(ended)):
                result.disordered.append(f"task {dependent} began before task {predecessor} had ended")


def check_decisions(result: CheckResult, records: list[dict[str, Any]], decided: dict[int, str | None]) -> None:
    """Check that exactly one decision of each approval was accepted, and that it is the recorded one."""
    accepted: dict[int, set[str]] = defaultdict(set)
    for record in records:
        accepted[record["approval"]].add(record["by"])
    for approval_id, people in accepted.items():
        if len(people) > 1:
            result.accepted_twice.append(f"approval {approval_id} was decided by {' and '.join(sorted(people))}")
        elif decided.get(approval_id) not in people:
            result.lost.append(
                f"the decision of approval {approval_id} by {people} is lost: {decided.get(approval_id)}"
            )


def check_sagas(
    result: CheckResult, steps: list[dict[str, Any]], undone: list[dict[str, Any]], rows: dict[int, Any]
) -> None:
    """Check that the completed steps of each saga were undone, in the reverse order of their completion."""
    for key in {record["key"] for record in steps}:
        order = list(dict.fromkeys(record["number"] for record in undone if record["key"] == key))
        numbers = {record["task"]: record["number"] for record in steps if record["key"] == key}
        completed = [task_id for task_id in numbers if rows[task_id]["status"] == "COMPLETED"]
        completed.sort(key=lambda task_id: (rows[task_id]["completed_at"], task_id), reverse=True)
        if order != (expected := [numbers[task_id] for task_id in completed]):
            result.disordered.append(f"the steps {expected} of the saga {key} were undone as {order}")
