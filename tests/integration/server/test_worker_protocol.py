"""Worker protocol: fencing by leases, and separation of organisations."""

from __future__ import annotations

import threading
from typing import Any
from uuid import uuid4

from tests.integration.server.http_worker import HttpWorker, enqueue, show


def test_task_is_claimed_renewed_and_completed(site, http_worker) -> None:
    task_id = enqueue(site, "whole", payload={"n": 1})
    [task] = http_worker.claim(queues=["whole"])
    assert (task["lease"]["task_id"], task["kwargs"], task["lease"]["attempt"]) == (task_id, {"n": 1}, 1)
    assert http_worker.post("tasks/start", leases=[task["lease"]]).json() == {"ids": [task_id]}
    beat = http_worker.post("tasks/heartbeat", worker_id=http_worker.id, leases=[task["lease"]]).json()
    assert beat == {"lost": [], "cancelled": []}
    assert show(site, task_id)["status"] == "RUNNING"
    assert (
        http_worker.post("tasks/log", lease=task["lease"], offset=0, text="=== attempt 1, now ===\nhello ").status_code
        == 204
    )
    for _ in range(2):  # sent twice, written once
        http_worker.post("tasks/log", lease=task["lease"], offset=29, text="world\n")
    [row] = site.sql("SELECT tasks.log_path FROM tasks WHERE id = $1", int(task_id))
    assert row["log_path"] == str(site.logs / f"{task_id}.log")
    assert http_worker.post("tasks/complete", lease=task["lease"], result={"x": 1}).status_code == 204
    assert show(site, task_id)["result"] == {"x": 1}
    log = site.as_("reader").get(f"/v1/tasks/{task_id}/log").json()["text"]
    assert log == "=== attempt 1, now ===\nhello world\n"
    counted = [{"queue": task["queue"], "completed": 1}]
    for _ in range(2):  # sent twice, counted once
        sent = http_worker.post("workers/counts", worker_id=http_worker.id, report=1, queues=counted)
        assert sent.status_code == 204
    rows = site.sql("SELECT org_id, completed, failed FROM queue_minutes WHERE queue = 'whole'")
    assert [tuple(row) for row in rows] == [(site.org, 1, 0)]


def test_lost_lease_changes_nothing(site, http_worker) -> None:
    task_id = enqueue(site, "zombie")
    [old] = http_worker.claim(queues=["zombie"])
    assert http_worker.post("tasks/release", lease=old["lease"]).status_code == 204
    [new] = http_worker.claim(queues=["zombie"])
    assert new["lease"]["attempt"] == 2
    lost = [
        http_worker.post("tasks/complete", lease=old["lease"], result=1),
        http_worker.post("tasks/fail", lease=old["lease"], error="no"),
        http_worker.post("tasks/release", lease=old["lease"]),
        http_worker.post("tasks/log", lease=old["lease"], offset=0, text="zombie"),
        http_worker.post("tasks/results", lease=old["lease"]),
        http_worker.post("tasks/add", lease=old["lease"]),
        http_worker.post("tasks/table-name", lease=old["lease"], table="named_x", name="x"),
        http_worker.post("tasks/fetch", lease=old["lease"]),
    ]
    assert [(answer.status_code, answer.json()["code"]) for answer in lost] == [(409, "lease_lost")] * len(lost)
    both = http_worker.post(
        "tasks/exchange",
        worker_id=http_worker.id,
        limit=0,
        completed=[{"lease": old["lease"]}, {"lease": new["lease"]}],
    )
    assert both.json()["accepted"] == [task_id]
    assert http_worker.post("tasks/start", leases=[old["lease"]]).json() == {"ids": []}
    held = http_worker.post("tasks/tables", action="reserve", tables=[{"table": "t1", "lease": old["lease"]}]).json()
    assert held["tables"] == [{"lease_lost": True, "is_unknown": False}]


def test_failure_is_retried_by_the_policy_of_the_task(site, http_worker) -> None:
    task_id = enqueue(site, "failing", max_attempts=2, retry_policy={"base_seconds": 0.0, "cap_seconds": 0.0})
    for attempt, status in ((1, "FAILED"), (2, "DEAD_LETTER")):
        [task] = http_worker.claim(queues=["failing"], wait_seconds=20)
        assert task["lease"]["attempt"] == attempt
        assert http_worker.post("tasks/fail", lease=task["lease"], error="no luck", fingerprint="f").status_code == 204
        assert show(site, task_id)["status"] == status
    assert show(site, task_id)["error"] == "no luck"


def test_claim_waits_for_ready_tasks(site, http_worker) -> None:
    claimed: list[Any] = []
    waiting = threading.Thread(target=lambda: claimed.extend(http_worker.claim(queues=["later"], wait_seconds=50)))
    waiting.start()
    task_id = enqueue(site, "later")
    waiting.join(30)
    assert [task["lease"]["task_id"] for task in claimed] == [task_id]


def test_task_adds_tasks_and_reads_results_of_its_job(site, http_worker) -> None:
    node = {"key": "a", "entrypoint": "m.f", "queue": "growing"}
    job = site.as_("writer").post("/v1/jobs", json={"name": "j", "tasks": [node]}).json()["id"]
    [first] = http_worker.claim(queues=["growing"])
    new = str(int(first["lease"]["task_id"]) + 1)
    task = {
        "id": new, "type": "m.g", "entrypoint": "m.g", "group_id": None, "queue": "growing", "priority": 0,
        "kwargs": {"x": {"object_type": "task", "task_id": first["lease"]["task_id"]}}, "max_attempts": 1,
        "timeout_seconds": None, "retry_policy": None, "run_at": None, "idempotency_key": None,
        "concurrency_key": None, "concurrency_limit": None,
    }  # fmt: skip
    assert http_worker.post("tasks/add", lease=first["lease"], tasks=[task]).status_code == 204
    assert http_worker.claim(queues=["growing"]) == []  # it depends on the task that added it
    http_worker.post("tasks/complete", lease=first["lease"], result=[7])
    [second] = http_worker.claim(queues=["growing"])
    assert second["job_id"] == job
    results = http_worker.post("tasks/results", lease=second["lease"], task_ids=[first["lease"]["task_id"]]).json()[
        "results"
    ]
    assert [result["result"] for result in results] == [[7]]
    assert http_worker.post("tasks/fetch", lease=second["lease"]).json()["task"]["kwargs"] == {"x": [7]}
    http_worker.post("tasks/complete", lease=second["lease"])
    assert site.as_("reader").get(f"/v1/jobs/{job}").json()["status"] == "COMPLETED"


def test_worker_claims_only_tasks_of_its_organisation(site, http_worker) -> None:
    own_task, other_task = enqueue(site, "mixed"), enqueue(site, "mixed", "other-writer")
    other_worker = HttpWorker(site, "other-worker")
    [task] = other_worker.claim(10, queues=["mixed"])
    assert task["lease"]["task_id"] == other_task
    for what in ("tasks/claim", "workers/held-tasks", "workers/settle", "workers/run-loops"):
        assert other_worker.post(what, worker_id=http_worker.id).status_code == 404
    assert other_worker.post("workers/counts", worker_id=http_worker.id, report=1).status_code == 404
    for what in ("workers/renew", "workers/overdue-tasks"):
        assert other_worker.post(what, worker_ids=[http_worker.id]).status_code == 404
    [task] = http_worker.claim(10, queues=["mixed"])
    assert task["lease"]["task_id"] == own_task
    guess = task["lease"] | {"token": str(uuid4())}
    assert other_worker.post("tasks/complete", lease=guess).status_code == 409
    assert other_worker.post("tasks/log", lease=task["lease"], offset=0, text="x").status_code == 409
    assert other_worker.post("workers/register", hostname="h", worker_id=http_worker.id).status_code == 409


def test_lease_of_another_organisation_counts_as_lost(site, http_worker) -> None:
    """Even with the complete lease."""
    task_id = enqueue(site, "stolen")
    [task] = http_worker.claim(queues=["stolen"])
    lease, other_worker = task["lease"], HttpWorker(site, "other-worker")
    wish = [{"table": f"t{task_id}", "lease": lease}]
    assert http_worker.post("tasks/tables", action="reserve", tables=wish).json()["tables"][0]["lease_lost"] is False
    state = "SELECT t.*, (SELECT count(*) FROM table_references WHERE owner_id = t.id) FROM tasks t WHERE id = $1"
    before = site.sql(state, int(task_id))
    assert other_worker.post("tasks/start", leases=[lease]).json() == {"ids": []}
    beat = other_worker.post("tasks/heartbeat", worker_id=other_worker.id, leases=[lease], lease_seconds=9_999).json()
    assert beat == {"lost": [task_id], "cancelled": []}
    for deed, held in (("release", []), ("hold", [{"lease_lost": True, "is_unknown": False}])):
        assert other_worker.post("tasks/tables", action=deed, tables=wish).json()["tables"] == held
    for what, body in (("complete", {"result": 1}), ("fail", {"error": "no"}), ("release", {})):
        answer = other_worker.post(f"tasks/{what}", lease=lease, **body)
        assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost"), what
    for outcomes in (
        {"completed": [{"lease": lease}]},
        {"failed": [{"lease": lease, "error": "no"}]},
        {"released": [lease]},
    ):
        assert (
            other_worker.post("tasks/exchange", worker_id=other_worker.id, limit=0, **outcomes).json()["accepted"] == []
        )
    overdue = {"lease": lease, "worker_id": http_worker.id, "cancelled": False, "timeout_seconds": 1, "failures": 0}
    assert other_worker.post("workers/settle", worker_id=other_worker.id, overdue=[overdue]).status_code == 204
    assert site.sql(state, int(task_id)) == before
    assert http_worker.post("tasks/complete", lease=lease, tables=[]).status_code == 204


def test_tasks_of_an_ended_worker_are_released(site, http_worker) -> None:
    task_id = enqueue(site, "left", timeout_seconds=0.001)
    [task] = http_worker.claim(queues=["left"])
    held = http_worker.post("workers/held-tasks", worker_id=http_worker.id).json()["tasks"]
    assert [item["lease"]["token"] for item in held] == [task["lease"]["token"]]
    http_worker.post("workers/renew", worker_ids=[http_worker.id], lease_seconds=60)
    overdue = http_worker.post("workers/overdue-tasks", worker_ids=[http_worker.id], grace_seconds=0).json()["tasks"]
    assert [item["lease"]["task_id"] for item in overdue] == [task_id]
    assert http_worker.post("workers/settle", worker_id=http_worker.id, overdue=overdue).status_code == 204
    assert show(site, task_id)["attempts"][0]["outcome"] == "TIMED_OUT"
    assert site.sql("SELECT status::text FROM workers WHERE id = $1", int(http_worker.id))[0]["status"] == "STOPPED"


def test_remote_leader_has_a_short_term(site, http_worker) -> None:
    """A leader that stops or misbehaves blocks other organisations for one term at most."""
    until = (
        "SELECT extract(epoch FROM leader_until - now())::float8 AS seconds FROM workers WHERE id = $1 AND is_leader"
    )
    site.sql("UPDATE workers SET is_leader = false, leader_until = NULL WHERE is_leader RETURNING 1")
    assert http_worker.post("workers/run-loops", worker_id=http_worker.id, term_seconds=1.5).status_code == 204
    assert site.sql(until, int(http_worker.id))[0]["seconds"] <= 1.5
    assert http_worker.post("workers/run-loops", worker_id=http_worker.id, term_seconds=60).status_code == 422


def test_log_of_a_new_attempt_begins_on_a_new_line(site, http_worker) -> None:
    task_id = enqueue(site, "torn")
    for attempt in (1, 2):
        [task] = http_worker.claim(queues=["torn"])
        for _ in range(2):
            http_worker.post("tasks/log", lease=task["lease"], offset=0, text=f"=== attempt {attempt}, now ===\ntorn")
        assert http_worker.post("tasks/release", lease=task["lease"]).status_code == 204
    log = site.as_("reader").get(f"/v1/tasks/{task_id}/log").json()["text"]
    assert log == "=== attempt 1, now ===\ntorn\n=== attempt 2, now ===\ntorn"


def test_aliases_of_the_design_documents_run_a_task(site, http_worker) -> None:
    task_ids = [enqueue(site, "aliases") for _ in range(2)]
    claim = {"worker_id": http_worker.id, "limit": 2, "queues": ["aliases"]}
    first, second = http_worker.post("/v1/task/claim", **claim).json()["tasks"]
    assert http_worker.post("/internal/task-fetch", lease=first["lease"]).json()["task"]["lease"] == first["lease"]
    heartbeat = http_worker.post("/v1/task/heartbeat", worker_id=http_worker.id, leases=[first["lease"]])
    assert heartbeat.json() == {"lost": [], "cancelled": []}
    effects = {"definition": str(uuid4())}
    emitted = http_worker.post("/v1/task/events", lease=first["lease"], cursor="c", effects=effects)
    assert emitted.json()["detail"] == "Only tasks of a DAG can write to datasets."
    assert http_worker.post("/v1/task/complete", lease=first["lease"]).status_code == 204
    assert http_worker.post("/v1/task/fail", lease=second["lease"], error="no", permanent=True).status_code == 204
    assert sorted(show(site, task_id)["status"] for task_id in task_ids) == ["COMPLETED", "FAILED"]
