"""Encode leases, claims, outcomes and plans as JSON objects, and decode them.

Ids are strings, since JavaScript loses their last digits; JSON text of the store is nested JSON here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from aaiclick.api.worker_protocol.tasks import AddTasksRequest
from aaiclick.endpoints import ClickHouseEndpoint
from aaiclick.store.engine.leases import Claim, Failure, Lease, Success, monotonic_seconds_ago, seconds_since
from aaiclick.store.engine.plan import NewGroup, NewTask, Plan
from aaiclick.store.engine.worker_leases import HeldLease, OverdueTask

JsonObject = dict[str, Any]
Outcome = Success | Failure | Lease


def encode_lease(lease: Lease) -> JsonObject:
    return {"task_id": str(lease.task_id), "attempt": lease.attempt, "token": str(lease.token), "linked": lease.linked}


def decode_lease(data: Mapping[str, Any]) -> Lease:
    return Lease(int(data["task_id"]), data["attempt"], UUID(data["token"]), data["linked"])


def encode_claim(claim: Claim) -> JsonObject:
    return {
        "lease": encode_lease(claim.lease),
        "org_id": str(claim.org_id),
        "job_id": _encode_id(claim.job_id),
        "group_id": _encode_id(claim.group_id),
        "type": claim.type,
        "entrypoint": claim.entrypoint,
        "kwargs": json.loads(claim.kwargs),
        "timeout_seconds": claim.timeout_seconds,
        "failures": claim.failures,
        "retry_policy": parse_json(claim.retry_policy),
        "suspect": claim.suspect,
        "queue": claim.queue,
        "lease_seconds": claim.lease_seconds,
        "priority": claim.priority,
        "shared": claim.shared,
    }


def encode_payload(claim: Claim, worker_id: int, lease_seconds: float) -> JsonObject:
    """Encode a claimed task as the response of `/v1/worker-api/tasks/fetch` and the event of a Lambda function.

    It contains no credential: the event of a Lambda function is readable by others.
    """
    return {
        "task": encode_claim(claim),
        "worker_id": str(worker_id),
        "lease_seconds": lease_seconds,
        "clickhouse": None,
        "no_clickhouse": None,
        "clickhouse_unreachable": False,
    }


def decode_claim(data: Mapping[str, Any]) -> Claim:
    return Claim(
        decode_lease(data["lease"]), UUID(data["org_id"]), _decode_id(data["job_id"]), _decode_id(data["group_id"]),
        data["type"], data["entrypoint"], json.dumps(data["kwargs"]), data["timeout_seconds"], data["failures"],
        to_json_text(data["retry_policy"]), data["suspect"], data["queue"], data["lease_seconds"], data["priority"],
        data["shared"],
    )  # fmt: skip


def encode_success(success: Success) -> JsonObject:
    effects = {} if success.effects is None else {"effects": json.loads(success.effects)}
    return effects | {
        "lease": encode_lease(success.lease),
        "result": parse_json(success.result),
        "seconds": seconds_since(success.began),
        "awaits": [str(task_id) for task_id in success.awaits],
        "tables": None if success.tables is None else list(success.tables),
    }


def decode_success(data: Mapping[str, Any]) -> Success:
    return Success(
        decode_lease(data["lease"]),
        to_json_text(data["result"]),
        monotonic_seconds_ago(data["seconds"]),
        tuple(int(task_id) for task_id in data["awaits"]),
        None if data["tables"] is None else tuple(data["tables"]),
        to_json_text(data.get("effects")),
    )


def encode_failure(failure: Failure) -> JsonObject:
    return {
        "lease": encode_lease(failure.lease),
        "error": failure.error,
        "fingerprint": failure.fingerprint,
        "permanent": failure.permanent,
        "delay_seconds": failure.delay_seconds,
        "seconds": seconds_since(failure.began),
        "charged": failure.charged,
        "outcome": failure.outcome,
    }


def decode_failure(data: Mapping[str, Any]) -> Failure:
    plain = {name: value for name, value in data.items() if name not in ("lease", "seconds")}
    return Failure(decode_lease(data["lease"]), began=monotonic_seconds_ago(data["seconds"]), **plain)


def encode_outcome(outcome: Outcome) -> JsonObject:
    """Encode an outcome under a key that names its type."""
    if isinstance(outcome, Success):
        return {"success": encode_success(outcome)}
    return {"failure": encode_failure(outcome)} if isinstance(outcome, Failure) else {"release": encode_lease(outcome)}


def decode_outcome(data: Mapping[str, Any]) -> Outcome:
    if "success" in data:
        return decode_success(data["success"])
    return decode_failure(data["failure"]) if "failure" in data else decode_lease(data["release"])


def encode_overdue(task: OverdueTask) -> JsonObject:
    return {
        **asdict(task),
        "lease": encode_lease(task.lease),
        "worker_id": str(task.worker_id),
        "retry_policy": parse_json(task.retry_policy),
    }


def decode_overdue(data: Mapping[str, Any]) -> OverdueTask:
    return OverdueTask(
        decode_lease(data["lease"]), int(data["worker_id"]), data["cancelled"], data["timeout_seconds"],
        data["failures"], to_json_text(data["retry_policy"]),
    )  # fmt: skip


def encode_held(task: HeldLease) -> JsonObject:
    return {"lease": encode_lease(task.lease), "cancelled": task.cancelled, "age_seconds": task.age_seconds}


def decode_held(data: Mapping[str, Any]) -> HeldLease:
    return HeldLease(decode_lease(data["lease"]), data["cancelled"], data["age_seconds"])


def encode_plan(plan: Plan, names: Mapping[int, str]) -> JsonObject:
    """Encode a plan. Tables are left out: the server finds them in the arguments."""
    return {
        "tasks": [
            {
                **task.options.to_json(),
                "id": str(task.id),
                "type": task.type,
                "entrypoint": task.entrypoint,
                "kwargs": json.loads(task.kwargs),
                "group_id": _encode_id(task.group_id),
                "idempotency_key": task.idempotency_key,
            }
            for task in plan.tasks
        ],
        "groups": [
            {"id": str(group.id), "name": group.name, "parent_group_id": _encode_id(group.parent_group_id)}
            for group in plan.groups
        ],
        "edges": [[str(previous), str(following)] for previous, following in plan.edges],
        "names": {str(node): name for node, name in names.items()},
    }


def decode_plan(request: AddTasksRequest) -> tuple[Plan, dict[int, str]]:
    tasks = [
        NewTask(
            int(task.id), task.type, task.entrypoint, json.dumps(task.kwargs), _decode_id(task.group_id),
            task.idempotency_key, task.to_options(),
        )
        for task in request.tasks
    ]  # fmt: skip
    groups = [NewGroup(int(group.id), group.name, _decode_id(group.parent_group_id)) for group in request.groups]
    edges = [(int(previous), int(following)) for previous, following in request.edges]
    return Plan(tasks, groups, edges), {int(node): name for node, name in request.names.items()}


def encode_endpoint(endpoint: ClickHouseEndpoint) -> JsonObject:
    return asdict(endpoint)


def decode_endpoint(data: Mapping[str, Any]) -> ClickHouseEndpoint:
    return ClickHouseEndpoint.of(data)


def _encode_id(value: int | None) -> str | None:
    return None if value is None else str(value)


def _decode_id(value: str | None) -> int | None:
    return None if value is None else int(value)


def parse_json(text: str | None) -> object:
    return None if text is None else json.loads(text)


def to_json_text(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def decode_time(value: str | datetime | None) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else value
