"""The task protocol as a worker without a database speaks it: fenced by leases, walled off by organisation."""

from __future__ import annotations

import threading
from typing import Any
from uuid import uuid4

import pytest


class Hand:
    """A worker that is nothing but requests."""

    def __init__(self, site, role: str) -> None:
        self.client = site.as_(role)
        answer = self.client.post("/v1/worker/register", json={"hostname": "hand", "pid": 1})
        self.id = answer.json()["worker_id"]

    def say(self, what: str, **body: Any):
        return self.client.post(what, json=body)

    def claim(self, limit: int = 1, **more: Any) -> list[dict[str, Any]]:
        answer = self.say("/v1/task/claim", worker_id=self.id, limit=limit, lease_seconds=60, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()["tasks"]


@pytest.fixture
def hand(site):
    return Hand(site, "worker")


def enqueue(site, queue: str, role: str = "writer", **item: Any) -> str:
    answer = site.as_(role).post("/v1/tasks", json={"items": [{"type": "t", "queue": queue, **item}]})
    assert answer.status_code == 201, answer.text
    return answer.json()["ids"][0]


def show(site, task_id: str) -> dict[str, Any]:
    return site.as_("reader").get(f"/v1/tasks/{task_id}").json()


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
    assert (
        hand.say("/v1/task/complete", lease=task["lease"], result={"x": 1}, log_path="/etc/passwd").status_code == 204
    )
    assert show(site, task_id)["result"] == {"x": 1}
    log = site.as_("reader").get(f"/v1/tasks/{task_id}/log").json()["text"]
    assert log == "=== attempt 1, now ===\nhello world\n"
    [row] = site.sql("SELECT log_path FROM tasks WHERE id = $1", int(task_id))
    assert row["log_path"] == str(site.logs / f"{task_id}.log")


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


def test_what_a_worker_leaves_behind_goes_back(site, hand) -> None:
    task_id = enqueue(site, "left", timeout_seconds=0.001)
    [task] = hand.claim(queues=["left"])
    held = hand.say("/v1/worker/held", worker_id=hand.id, old_seconds=0).json()["tasks"]
    assert [each["lease"]["token"] for each in held] == [task["lease"]["token"]]
    hand.say("/v1/worker/keep", worker_ids=[hand.id], lease_seconds=60)
    overdue = hand.say("/v1/worker/overdue", worker_ids=[hand.id], grace_seconds=0).json()["tasks"]
    assert [each["lease"]["task_id"] for each in overdue] == [task_id]
    assert hand.say("/v1/worker/settle", worker_id=hand.id, culprits=overdue).status_code == 204
    assert show(site, task_id)["attempts"][0]["outcome"] == "TIMED_OUT"
    assert site.sql("SELECT status::text FROM workers WHERE id = $1", int(hand.id))[0]["status"] == "STOPPED"


def test_an_object_of_another_organisation_does_not_exist(site, hand) -> None:
    """Neither as an argument, nor as something that an attempt reads, returns or keeps."""
    enqueue(site, "tables")
    enqueue(site, "tables", "other-writer")
    stranger = Hand(site, "other-worker")
    [mine], [theirs] = hand.claim(queues=["tables"]), stranger.claim(queues=["tables"])
    table = f"t{mine['lease']['task_id']}"
    wish = [{"table": table, "lease": mine["lease"]}]
    assert hand.say("/v1/task/tables", deed="reserve", tables=wish).json()["tables"] == [
        {"lease_lost": False, "gone": False}
    ]
    foreign = [{"table": table, "lease": theirs["lease"]}]
    assert stranger.say("/v1/task/tables", deed="hold", tables=foreign).json()["tables"] == [
        {"lease_lost": False, "gone": True}
    ]
    given = {"items": [{"type": "t", "payload": {"x": {"object_type": "object", "table_id": table}}}]}
    job = {"name": "j", "entrypoint": "m.f", "kwargs": given["items"][0]["payload"]}
    for path, body in (("/v1/tasks", given), ("/v1/jobs", job)):
        assert site.as_("other-writer").post(path, json=body).status_code == 404
        assert site.as_("writer").post(path, json=body).status_code == 201
    before = site.sql("SELECT count(*) FROM table_references WHERE table_name = $1", table)[0]["count"]
    assert before == 3  # the attempt, the item, the job
    assert stranger.say("/v1/task/complete", lease=theirs["lease"], tables=[table]).status_code == 204
    assert site.sql("SELECT count(*) FROM table_references WHERE table_name = $1", table)[0]["count"] == before


def test_names_of_two_organisations_do_not_meet(site, hand) -> None:
    enqueue(site, "names")
    enqueue(site, "names", "other-writer")
    stranger = Hand(site, "other-worker")
    [mine], [theirs] = hand.claim(queues=["names"]), stranger.claim(queues=["names"])
    for who, task in ((hand, mine), (stranger, theirs)):
        who.say("/v1/task/name", lease=task["lease"], table="named_sales", name="sales")
    assert stranger.say("/v1/task/name", lease=theirs["lease"], table="named_sales").status_code == 204
    left = site.sql("SELECT table_name FROM table_references WHERE owner = 'NAME'")
    assert [row["table_name"] for row in left] == [f"{site.org}.named_sales"]


def test_without_a_user_for_each_the_credential_of_all_is_given_to_nobody(site, hand) -> None:
    """The embedded ClickHouse has its users in a file."""
    enqueue(site, "secret")
    answer = hand.say("/v1/task/claim", worker_id=hand.id, queues=["secret"]).json()
    assert answer["clickhouse"] is None
    assert "no user for each organisation" in answer["no_clickhouse"]
    operator = Hand(site, "operator-worker")
    enqueue(site, "secret", "operator-writer")
    found = operator.say("/v1/task/claim", worker_id=operator.id, queues=["secret"]).json()
    assert found["clickhouse"]["database"]
