"""The task protocol as a worker without a database speaks it: fenced by leases, walled off by organisation."""

from __future__ import annotations

import threading
from typing import Any
from uuid import uuid4

from tests.integration.server.hand import Hand, enqueue, show


def test_a_task_is_claimed_kept_and_completed(site, hand) -> None:
    task_id = enqueue(site, "whole", payload={"n": 1})
    [task] = hand.claim(queues=["whole"])
    assert (task["lease"]["task_id"], task["kwargs"], task["lease"]["attempt"]) == (task_id, {"n": 1}, 1)
    assert hand.say("/v1/task/start", leases=[task["lease"]]).json() == {"ids": [task_id]}
    beat = hand.say("/v1/task/heartbeat", worker_id=hand.id, leases=[task["lease"]]).json()
    assert beat == {"lost": [], "cancelled": []}
    assert show(site, task_id)["status"] == "RUNNING"
    assert (
        hand.say("/v1/task/log", lease=task["lease"], offset=0, text="=== attempt 1, now ===\nhello ").status_code
        == 204
    )
    for _ in range(2):  # said twice, there once
        hand.say("/v1/task/log", lease=task["lease"], offset=29, text="world\n")
    [row] = site.sql("SELECT log_path FROM tasks WHERE id = $1", int(task_id))
    assert row["log_path"] == str(site.logs / f"{task_id}.log")
    assert hand.say("/v1/task/complete", lease=task["lease"], result={"x": 1}).status_code == 204
    assert show(site, task_id)["result"] == {"x": 1}
    log = site.as_("reader").get(f"/v1/tasks/{task_id}/log").json()["text"]
    assert log == "=== attempt 1, now ===\nhello world\n"
    counted = [{"queue": task["queue"], "completed": 1}]
    assert hand.say("/v1/worker/count", worker_id=hand.id, queues=counted).status_code == 204
    rows = site.sql("SELECT org_id, completed, failed FROM queue_minutes WHERE queue = 'whole'")
    assert [tuple(row) for row in rows] == [(site.org, 1, 0)]


def test_who_lost_its_lease_changes_nothing(site, hand) -> None:
    task_id = enqueue(site, "zombie")
    [old] = hand.claim(queues=["zombie"])
    assert hand.say("/v1/task/release", lease=old["lease"]).status_code == 204
    [new] = hand.claim(queues=["zombie"])
    assert new["lease"]["attempt"] == 2
    lost = [
        hand.say("/v1/task/complete", lease=old["lease"], result=1),
        hand.say("/v1/task/fail", lease=old["lease"], error="no"),
        hand.say("/v1/task/release", lease=old["lease"]),
        hand.say("/v1/task/log", lease=old["lease"], offset=0, text="zombie"),
        hand.say("/v1/task/results", lease=old["lease"]),
        hand.say("/v1/task/add", lease=old["lease"]),
        hand.say("/v1/task/name", lease=old["lease"], table="named_x", name="x"),
        hand.say("/internal/task-fetch", lease=old["lease"]),
    ]
    assert [(answer.status_code, answer.json()["code"]) for answer in lost] == [(409, "lease_lost")] * len(lost)
    both = hand.say(
        "/v1/task/exchange", worker_id=hand.id, limit=0, completed=[{"lease": old["lease"]}, {"lease": new["lease"]}]
    )
    assert both.json()["accepted"] == [task_id]
    assert hand.say("/v1/task/start", leases=[old["lease"]]).json() == {"ids": []}
    held = hand.say("/v1/task/tables", deed="reserve", tables=[{"table": "t1", "lease": old["lease"]}]).json()
    assert held["tables"] == [{"lease_lost": True, "gone": False}]


def test_a_failure_is_retried_by_the_policy_of_the_task(site, hand) -> None:
    task_id = enqueue(site, "failing", max_attempts=2, retry_policy={"base_seconds": 0.0, "cap_seconds": 0.0})
    for attempt, status in ((1, "FAILED"), (2, "DEAD_LETTER")):
        [task] = hand.claim(queues=["failing"], wait_seconds=20)
        assert task["lease"]["attempt"] == attempt
        assert hand.say("/v1/task/fail", lease=task["lease"], error="no luck", fingerprint="f").status_code == 204
        assert show(site, task_id)["status"] == status
    assert show(site, task_id)["error"] == "no luck"


def test_a_claim_waits_for_work(site, hand) -> None:
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.extend(hand.claim(queues=["later"], wait_seconds=50)))
    waiting.start()
    task_id = enqueue(site, "later")
    waiting.join(30)
    assert [task["lease"]["task_id"] for task in found] == [task_id]


def test_a_task_adds_to_its_job_and_reads_what_others_returned(site, hand) -> None:
    node = {"key": "a", "entrypoint": "m.f", "queue": "growing"}
    job = site.as_("writer").post("/v1/jobs", json={"name": "j", "tasks": [node]}).json()["id"]
    [first] = hand.claim(queues=["growing"])
    new = str(int(first["lease"]["task_id"]) + 1)
    task = {
        "id": new, "type": "m.g", "entrypoint": "m.g", "group_id": None, "queue": "growing", "priority": 0,
        "kwargs": {"x": {"object_type": "task", "task_id": first["lease"]["task_id"]}}, "max_attempts": 1,
        "timeout_seconds": None, "retry_policy": None, "run_at": None, "idempotency_key": None,
        "concurrency_key": None, "concurrency_limit": None,
    }  # fmt: skip
    assert hand.say("/v1/task/add", lease=first["lease"], tasks=[task]).status_code == 204
    assert hand.claim(queues=["growing"]) == []  # it waits for the task that added it
    hand.say("/v1/task/complete", lease=first["lease"], result=[7])
    [second] = hand.claim(queues=["growing"])
    assert second["job_id"] == job
    results = hand.say("/v1/task/results", lease=second["lease"], task_ids=[first["lease"]["task_id"]]).json()[
        "results"
    ]
    assert [each["result"] for each in results] == [[7]]
    assert hand.say("/internal/task-fetch", lease=second["lease"]).json()["task"]["kwargs"] == {"x": [7]}
    hand.say("/v1/task/complete", lease=second["lease"])
    assert site.as_("reader").get(f"/v1/jobs/{job}").json()["status"] == "COMPLETED"


def test_an_organisation_gets_its_own_work_alone(site, hand) -> None:
    mine, theirs = enqueue(site, "mixed"), enqueue(site, "mixed", "other-writer")
    stranger = Hand(site, "other-worker")
    [task] = stranger.claim(10, queues=["mixed"])
    assert task["lease"]["task_id"] == theirs
    for what in ("/v1/task/claim", "/v1/worker/held", "/v1/worker/settle", "/v1/worker/house", "/v1/worker/count"):
        assert stranger.say(what, worker_id=hand.id).status_code == 404
    for what in ("/v1/worker/keep", "/v1/worker/overdue"):
        assert stranger.say(what, worker_ids=[hand.id]).status_code == 404
    [task] = hand.claim(10, queues=["mixed"])
    assert task["lease"]["task_id"] == mine
    guess = task["lease"] | {"token": str(uuid4())}
    assert stranger.say("/v1/task/complete", lease=guess).status_code == 409
    assert stranger.say("/v1/task/log", lease=task["lease"], offset=0, text="x").status_code == 409
    assert stranger.say("/v1/worker/register", hostname="h", worker_id=hand.id).status_code == 409


def test_a_lease_on_a_task_of_another_organisation_is_a_lost_one(site, hand) -> None:
    """Also for who holds all of it."""
    task_id = enqueue(site, "stolen")
    [task] = hand.claim(queues=["stolen"])
    lease, stranger = task["lease"], Hand(site, "other-worker")
    wish = [{"table": f"t{task_id}", "lease": lease}]
    assert hand.say("/v1/task/tables", deed="reserve", tables=wish).json()["tables"][0]["lease_lost"] is False
    state = "SELECT t.*, (SELECT count(*) FROM table_references WHERE owner_id = t.id) FROM tasks t WHERE id = $1"
    before = site.sql(state, int(task_id))
    assert stranger.say("/v1/task/start", leases=[lease]).json() == {"ids": []}
    beat = stranger.say("/v1/task/heartbeat", worker_id=stranger.id, leases=[lease], lease_seconds=9_999).json()
    assert beat == {"lost": [task_id], "cancelled": []}
    for deed, held in (("release", []), ("hold", [{"lease_lost": True, "gone": False}])):
        assert stranger.say("/v1/task/tables", deed=deed, tables=wish).json()["tables"] == held
    for what, body in (("complete", {"result": 1}), ("fail", {"error": "no"}), ("release", {})):
        answer = stranger.say(f"/v1/task/{what}", lease=lease, **body)
        assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost"), what
    for said in (
        {"completed": [{"lease": lease}]},
        {"failed": [{"lease": lease, "error": "no"}]},
        {"released": [lease]},
    ):
        assert stranger.say("/v1/task/exchange", worker_id=stranger.id, limit=0, **said).json()["accepted"] == []
    culprit = {"lease": lease, "worker_id": hand.id, "cancelled": False, "timeout_seconds": 1, "failures": 0}
    assert stranger.say("/v1/worker/settle", worker_id=stranger.id, culprits=[culprit]).status_code == 204
    assert site.sql(state, int(task_id)) == before
    assert hand.say("/v1/task/complete", lease=lease, tables=[]).status_code == 204


def test_what_a_worker_leaves_behind_goes_back(site, hand) -> None:
    task_id = enqueue(site, "left", timeout_seconds=0.001)
    [task] = hand.claim(queues=["left"])
    held = hand.say("/v1/worker/held", worker_id=hand.id).json()["tasks"]
    assert [each["lease"]["token"] for each in held] == [task["lease"]["token"]]
    hand.say("/v1/worker/keep", worker_ids=[hand.id], lease_seconds=60)
    overdue = hand.say("/v1/worker/overdue", worker_ids=[hand.id], grace_seconds=0).json()["tasks"]
    assert [each["lease"]["task_id"] for each in overdue] == [task_id]
    assert hand.say("/v1/worker/settle", worker_id=hand.id, culprits=overdue).status_code == 204
    assert show(site, task_id)["attempts"][0]["outcome"] == "TIMED_OUT"
    assert site.sql("SELECT status::text FROM workers WHERE id = $1", int(hand.id))[0]["status"] == "STOPPED"


def test_who_leads_by_way_of_a_server_does_so_for_a_short_term(site, hand) -> None:
    """Who then falls silent, or means to, keeps all organisations waiting for no longer than that."""
    until = (
        "SELECT extract(epoch FROM leader_until - now())::float8 AS seconds FROM workers WHERE id = $1 AND is_leader"
    )
    site.sql("UPDATE workers SET is_leader = false, leader_until = NULL WHERE is_leader RETURNING 1")
    assert hand.say("/v1/worker/house", worker_id=hand.id, term_seconds=1.5).status_code == 204
    assert site.sql(until, int(hand.id))[0]["seconds"] <= 1.5
    assert hand.say("/v1/worker/house", worker_id=hand.id, term_seconds=60).status_code == 422


def test_an_attempt_sent_after_a_torn_one_begins_on_its_own_line(site, hand) -> None:
    task_id = enqueue(site, "torn")
    for attempt in (1, 2):
        [task] = hand.claim(queues=["torn"])
        for _ in range(2):
            hand.say("/v1/task/log", lease=task["lease"], offset=0, text=f"=== attempt {attempt}, now ===\ntorn")
        assert hand.say("/v1/task/release", lease=task["lease"]).status_code == 204
    log = site.as_("reader").get(f"/v1/tasks/{task_id}/log").json()["text"]
    assert log == "=== attempt 1, now ===\ntorn\n=== attempt 2, now ===\ntorn"
