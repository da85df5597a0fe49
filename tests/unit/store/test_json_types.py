"""JSON of leases, claims and outcomes: schemas and pipes read and write the dataclasses themselves."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from pydantic import TypeAdapter, ValidationError

from aaiclick.api.worker_protocol.claims import ClaimResponse
from aaiclick.api.worker_protocol.field_types import LeaseRequest
from aaiclick.api.worker_protocol.tasks import AddTasksRequest
from aaiclick.api.worker_protocol.workers import SettleRequest
from aaiclick.store.engine.leases_and_outcomes import Claim, Failure, Lease, Success
from aaiclick.store.engine.submission_plan import NewGroup, NewTask, Plan
from aaiclick.store.task_options import TaskOptions

LEASE = Lease(2**62 + 1, 3, uuid4())
CLAIM = Claim(LEASE, uuid4(), 2**61 + 1, None, "t", "m.f", '{"a": [1, null]}', 1.5, 2, '{"base_seconds": 2.0}')


def test_ids_are_strings_and_json_text_is_nested() -> None:
    response = ClaimResponse(tasks=[CLAIM])
    [task] = json.loads(response.model_dump_json())["tasks"]
    assert (task["lease"]["task_id"], task["job_id"]) == (str(2**62 + 1), str(2**61 + 1))
    assert (task["kwargs"], task["retry_policy"]) == ({"a": [1, None]}, {"base_seconds": 2.0})
    assert ClaimResponse.model_validate_json(response.model_dump_json()) == response


@pytest.mark.parametrize("outcome", [Success(LEASE, "[1]", 1.5, [2], ("t1",)), Failure(LEASE, "no", "f"), LEASE])
def test_outcomes_keep_their_type(outcome: Success | Failure | Lease) -> None:
    adapter: TypeAdapter[Success | Failure | Lease] = TypeAdapter(Success | Failure | Lease)
    assert adapter.validate_json(adapter.dump_json(outcome)) == outcome


@pytest.mark.parametrize("task_id", ["0", "-1", "1.0", "x", str(2**63), 1.5, True, None, [1]])
def test_invalid_ids_are_refused(task_id: object) -> None:
    with pytest.raises(ValidationError):
        LeaseRequest.model_validate({"lease": {"task_id": task_id, "attempt": 1, "token": str(uuid4())}})


@pytest.mark.parametrize("change", [{"attempt": 0}, {"token": "x"}, {"other": 1}])
def test_invalid_leases_are_refused(change: dict[str, Any]) -> None:
    lease = {"task_id": "1", "attempt": 1, "token": str(uuid4())}
    assert LeaseRequest.model_validate({"lease": lease}).lease.task_id == 1
    with pytest.raises(ValidationError):
        LeaseRequest.model_validate({"lease": lease | change})


@pytest.mark.parametrize("policy", [[1], "x", {"base_seconds": -1}, {"other": 1}])
def test_invalid_retry_policies_of_overdue_tasks_are_refused(policy: object) -> None:
    lease = {"task_id": "1", "attempt": 1, "token": str(uuid4())}
    task = {"lease": lease, "worker_id": "2", "cancelled": False, "timeout_seconds": 1, "failures": 0}
    assert SettleRequest.model_validate({"worker_id": "2", "overdue": [task]}).overdue[0].retry_policy is None
    with pytest.raises(ValidationError):
        SettleRequest.model_validate({"worker_id": "2", "overdue": [task | {"retry_policy": policy}]})


def test_plans_keep_their_content() -> None:
    options = TaskOptions(max_attempts=2, queue="q", priority=3, concurrency_key="k", concurrency_limit=1)
    plan = Plan([NewTask(1, "t", "m.f", '{"x": 1}', 3, "key", options), NewTask(2, "t")], [NewGroup(3, "g")], [(1, 2)])
    request = AddTasksRequest.from_plan(LEASE, plan, {1: "one"})
    read = AddTasksRequest.model_validate(request.model_dump(mode="json"))
    assert (read.to_plan(), read.names, read.lease) == (plan, {1: "one"}, LEASE)
