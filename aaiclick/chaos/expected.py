"""What clients were told and what tasks saw, against the rows of tasks and jobs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from aaiclick.chaos.history import Seen
from aaiclick.chaos.load import POISON_ATTEMPTS
from aaiclick.chaos.verdict import Verdict

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "DEAD_LETTER")


def judge_items(verdict: Verdict, meant: list[dict[str, Any]], rows: dict[int, Any]) -> None:
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


def judge_posted(verdict: Verdict, meant: list[dict[str, Any]], rows: dict[int, Any]) -> None:
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


def judge_redriven(verdict: Verdict, meant: list[dict[str, Any]], rows: dict[int, Any]) -> None:
    """What was dead and got another chance has used it."""
    chances = Counter(task_id for each in meant if each.get("heard") == "redriven" for task_id in each["ids"])
    for task_id, more in chances.items():
        attempts = rows[task_id]["attempt"] if task_id in rows else 0
        if attempts < (1 + more) * POISON_ATTEMPTS:
            verdict.lost.append(f"task {task_id} was given {more} more chances, and ran {attempts} times in all")


def judge_times(verdict: Verdict, meant: list[dict[str, Any]], seen: dict[int, list[Seen]]) -> None:
    """Nothing began before its time."""
    ids = {key: id_ for each in meant if each.get("heard") == "items" for key, id_ in each["ids"].items()}
    for each in meant:
        for key in each.get("later", ()):
            began = min((m.at for m in seen.get(ids.get(key, 0), ()) if m.event == "begin"), default=each["not_before"])
            if began < each["not_before"]:
                verdict.disordered.append(f"item {key} began {each['not_before'] - began:.2f} s before its time")


def judge_jobs(verdict: Verdict, meant: list[dict[str, Any]], rows: dict[int, Any], jobs: dict[int, Any]) -> None:
    wanted = {each["key"]: each for each in meant if each.get("meant") in ("job", "flow")}
    cancelled = {each["key"] for each in meant if each.get("heard") == "cancelled"}
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
        elif job["status"] not in (("CANCELLED",) if each["key"] in cancelled else asked.get("ends", ("COMPLETED",))):
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


def judge_seen(verdict: Verdict, seen: dict[int, list[Seen]], rows: dict[int, Any]) -> None:
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


def judge_order(
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
