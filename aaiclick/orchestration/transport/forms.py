"""Leases, claims, outcomes and plans as JSON, and back. Ids are strings; JSON text of the store is JSON here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from aaiclick.store.leases import Claim, Failure, Lease, Success, began_before, seconds_since
from aaiclick.store.plan import NewGroup, NewTask, Plan
from aaiclick.store.supervision import Held, Overdue
from aaiclick.targets import ClickHouseTarget

Form = dict[str, Any]
Outcome = Success | Failure | Lease


def lease_form(lease: Lease) -> Form:
    return {"task_id": str(lease.task_id), "attempt": lease.attempt, "token": str(lease.token), "linked": lease.linked}


def lease_of(form: Mapping[str, Any]) -> Lease:
    return Lease(int(form["task_id"]), form["attempt"], UUID(form["token"]), form["linked"])


def claim_form(claim: Claim) -> Form:
    return {
        "lease": lease_form(claim.lease),
        "org_id": str(claim.org_id),
        "job_id": _text(claim.job_id),
        "group_id": _text(claim.group_id),
        "type": claim.type,
        "entrypoint": claim.entrypoint,
        "kwargs": json.loads(claim.kwargs),
        "timeout_seconds": claim.timeout_seconds,
        "failures": claim.failures,
        "retry_policy": loaded(claim.retry_policy),
        "suspect": claim.suspect,
        "queue": claim.queue,
        "lease_seconds": claim.lease_seconds,
        "priority": claim.priority,
        "shared": claim.shared,
    }


def payload_form(claim: Claim, worker_id: int, lease_seconds: float) -> Form:
    """A claimed task for the worker that runs it: the answer of `/internal/task-fetch`, and the event of a Lambda
    function, which has no credential in it.
    """
    return {
        "task": claim_form(claim),
        "worker_id": str(worker_id),
        "lease_seconds": lease_seconds,
        "clickhouse": None,
        "no_clickhouse": None,
        "clickhouse_unreachable": False,
    }


def claim_of(form: Mapping[str, Any]) -> Claim:
    return Claim(
        lease_of(form["lease"]), UUID(form["org_id"]), _number(form["job_id"]), _number(form["group_id"]), form["type"],
        form["entrypoint"], json.dumps(form["kwargs"]), form["timeout_seconds"], form["failures"],
        dumped(form["retry_policy"]), form["suspect"], form["queue"], form["lease_seconds"], form["priority"],
        form["shared"],
    )  # fmt: skip


def success_form(success: Success) -> Form:
    effects = {} if success.effects is None else {"effects": json.loads(success.effects)}
    return effects | {
        "lease": lease_form(success.lease),
        "result": loaded(success.result),
        "seconds": seconds_since(success.began),
        "awaits": [str(task_id) for task_id in success.awaits],
        "tables": None if success.tables is None else list(success.tables),
    }


def success_of(form: Mapping[str, Any]) -> Success:
    return Success(
        lease_of(form["lease"]),
        dumped(form["result"]),
        began_before(form["seconds"]),
        tuple(int(task_id) for task_id in form["awaits"]),
        None if form["tables"] is None else tuple(form["tables"]),
        dumped(form.get("effects")),
    )


def failure_form(failure: Failure) -> Form:
    return {
        "lease": lease_form(failure.lease),
        "error": failure.error,
        "fingerprint": failure.fingerprint,
        "permanent": failure.permanent,
        "delay_seconds": failure.delay_seconds,
        "seconds": seconds_since(failure.began),
        "charged": failure.charged,
        "outcome": failure.outcome,
    }


def failure_of(form: Mapping[str, Any]) -> Failure:
    plain = {name: value for name, value in form.items() if name not in ("lease", "seconds")}
    return Failure(lease_of(form["lease"]), began=began_before(form["seconds"]), **plain)


def outcome_form(outcome: Outcome) -> Form:
    """An outcome of any kind, with its kind."""
    if isinstance(outcome, Success):
        return {"success": success_form(outcome)}
    return {"failure": failure_form(outcome)} if isinstance(outcome, Failure) else {"release": lease_form(outcome)}


def outcome_of(form: Mapping[str, Any]) -> Outcome:
    if "success" in form:
        return success_of(form["success"])
    return failure_of(form["failure"]) if "failure" in form else lease_of(form["release"])


def overdue_form(task: Overdue) -> Form:
    return {
        **asdict(task),
        "lease": lease_form(task.lease),
        "worker_id": str(task.worker_id),
        "retry_policy": loaded(task.retry_policy),
    }


def overdue_of(form: Mapping[str, Any]) -> Overdue:
    return Overdue(
        lease_of(form["lease"]), int(form["worker_id"]), form["cancelled"], form["timeout_seconds"], form["failures"],
        dumped(form["retry_policy"]),
    )  # fmt: skip


def held_form(held: Held) -> Form:
    return {"lease": lease_form(held.lease), "cancelled": held.cancelled, "age_seconds": held.age_seconds}


def held_of(form: Mapping[str, Any]) -> Held:
    return Held(lease_of(form["lease"]), form["cancelled"], form["age_seconds"])


def plan_form(plan: Plan, names: Mapping[int, str]) -> Form:
    """Which tables are among the arguments, whoever reads this can see."""
    return {
        "tasks": [
            {
                **{name: getattr(task, name) for name in _AS_THEY_ARE},
                "id": str(task.id),
                "kwargs": json.loads(task.kwargs),
                "group_id": _text(task.group_id),
                "retry_policy": loaded(task.retry_policy),
                "run_at": _time(task.available_at),
            }
            for task in plan.tasks
        ],
        "groups": [
            {"id": str(group.id), "name": group.name, "parent_group_id": _text(group.parent_group_id)}
            for group in plan.groups
        ],
        "edges": [[str(previous), str(following)] for previous, following in plan.edges],
        "names": {str(node): name for node, name in names.items()},
    }


def plan_of(form: Mapping[str, Any]) -> tuple[Plan, dict[int, str]]:
    tasks = [
        NewTask(
            id=int(task["id"]),
            kwargs=json.dumps(task["kwargs"]),
            group_id=_number(task["group_id"]),
            retry_policy=dumped(task["retry_policy"]),
            available_at=task["run_at"],
            **{name: task[name] for name in _AS_THEY_ARE},
        )
        for task in form["tasks"]
    ]
    groups = [NewGroup(int(each["id"]), each["name"], _number(each["parent_group_id"])) for each in form["groups"]]
    edges = [(int(previous), int(following)) for previous, following in form["edges"]]
    return Plan(tasks, groups, edges), {int(node): name for node, name in form["names"].items()}


_AS_THEY_ARE = (
    "type", "entrypoint", "queue", "priority", "max_attempts", "timeout_seconds", "idempotency_key", "concurrency_key",
    "concurrency_limit", "critical",
)  # fmt: skip


def target_form(target: ClickHouseTarget) -> Form:
    return asdict(target)


def target_of(form: Mapping[str, Any]) -> ClickHouseTarget:
    return ClickHouseTarget.of(form)


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _number(value: str | None) -> int | None:
    return None if value is None else int(value)


def loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def dumped(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def _time(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def moment(value: str | datetime | None) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else value
