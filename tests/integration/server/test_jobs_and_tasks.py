"""Jobs, tasks, dead letters, queues, workers and logs over HTTP."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import queue
from aaiclick.store.engine.leases_and_outcomes import Failure, Success

GRAPH = {
    "name": "graph",
    "groups": [{"key": "g", "depends_on": ["load"]}],
    "tasks": [
        {"key": "load", "entrypoint": "m.load", "kwargs": {"day": "2026-11-15"}, "priority": 3},
        {"key": "left", "entrypoint": "m.left", "group": "g", "timeout_seconds": 5},
        {"key": "right", "entrypoint": "m.right", "group": "g", "retry_policy": {"base_seconds": 2}},
        {"key": "sum", "entrypoint": "m.sum", "kwargs": {"of": [{"object_type": "task", "task": "left"}]},
         "depends_on": ["g"]},
    ],
}  # fmt: skip


def claim(site, limit=100, **options):
    """Claim tasks like a local worker, and acknowledge them."""

    async def work(connection):
        worker = await queue.register_worker(connection, hostname="h", pid=1)
        claims = await queue.claim(
            connection, worker_id=worker.id, limit=limit, queues=options.get("queues", ()), lease_seconds=60
        )
        if options.get("fail"):
            failures = [Failure(claimed.lease, "it broke", options["fail"], permanent=False) for claimed in claims]
            await queue.acknowledge(connection, worker_id=worker.id, failures=failures)
        elif options.get("complete"):
            successes = [Success(claimed.lease, json.dumps(None)) for claimed in claims]
            await queue.acknowledge(connection, worker_id=worker.id, successes=successes)
        await queue.deregister_worker(connection, worker.id)
        return claims

    return site.run(work)


def enqueue(site, *items, role="writer", **headers):
    response = site.as_(role, **headers).post("/v1/tasks", json={"items": items})
    assert response.status_code == 201, response.text
    return response.json()["ids"]


def test_items_and_jobs_have_the_default_limits(site) -> None:
    (task_id,) = enqueue(site, {"type": "mail"})
    assert site.as_("reader").get(f"/v1/tasks/{task_id}").json()["max_attempts"] == 4
    job_id = site.as_("writer").post("/v1/jobs", json=GRAPH).json()["id"]
    (row,) = site.sql("SELECT timeout_seconds FROM jobs WHERE id = $1", int(job_id))
    assert row["timeout_seconds"] == 86_400


def test_graph_is_submitted_as_a_job(site) -> None:
    writer = site.as_("writer")
    created = writer.post("/v1/jobs", json=GRAPH)
    assert created.status_code == 201
    job_id = created.json()["id"]
    assert isinstance(job_id, str)
    job = writer.get(f"/v1/jobs/{job_id}").json()
    assert (job["id"], job["status"], job["total_tasks"]) == (job_id, "PENDING", 4)
    tasks = {task["entrypoint"]: task for task in writer.get("/v1/tasks", params={"job_id": job_id}).json()["items"]}
    assert [tasks[f"m.{name}"]["readiness"] for name in ("load", "left", "right", "sum")] == ["READY", *["BLOCKED"] * 3]
    assert tasks["m.load"]["priority"] == 3
    detail = writer.get(f"/v1/tasks/{tasks['m.sum']['id']}").json()
    assert detail["kwargs"] == {"of": [{"object_type": "task", "task_id": tasks["m.left"]["id"]}]}
    reasons = writer.get(f"/v1/tasks/{tasks['m.sum']['id']}/why").json()
    assert {reason["code"] for reason in reasons} == {"dependency"}


def test_job_is_listed_paused_cancelled_and_audited(site) -> None:
    writer = site.as_("writer")
    job_id = writer.post("/v1/jobs", json={"name": "short", "entrypoint": "m.f", "kwargs": {"x": 1}}).json()["id"]
    assert writer.get("/v1/jobs", params={"status": "PENDING"}).json()["items"][0]["id"] == job_id
    assert writer.post(f"/v1/jobs/{job_id}/pause").status_code == 204
    assert writer.get(f"/v1/jobs/{job_id}").json()["paused_at"] is not None
    assert writer.post(f"/v1/jobs/{job_id}/resume").status_code == 204
    assert writer.post(f"/v1/jobs/{job_id}/cancel").json() == {"outcome": "cancelled"}
    assert writer.post(f"/v1/jobs/{job_id}/cancel").json() == {"outcome": "over"}
    assert writer.get(f"/v1/jobs/{job_id}").json()["status"] == "CANCELLED"
    assert writer.get(f"/v1/jobs/{job_id}/events").json()[0]["kind"] == "created"
    back = writer.post(f"/v1/jobs/{job_id}/retry", params={"cancelled": True}).json()
    assert back["count"] == 1
    entries = site.as_("admin").get("/v1/audit").json()["items"]
    deeds = [entry["action"] for entry in entries if entry["target"] == job_id]
    assert deeds == ["job.retry", "job.cancel", "job.cancel", "job.resume", "job.pause", "job.create"]
    assert all(entry["actor"].startswith("key aai_") for entry in entries)


@pytest.mark.parametrize(
    ("change", "status", "code", "message"),
    [
        ({"tasks": [{"key": "a", "entrypoint": "m.f", "depends_on": ["b"]}]}, 422, "not_runnable", "'b'"),
        (
            {"tasks": [{"key": "a", "entrypoint": "m.f", "depends_on": ["b"]},
                       {"key": "b", "entrypoint": "m.f", "depends_on": ["a"]}]}, 422, "cycle", "a → b",
        ),
        ({"tasks": [{"key": "a", "entrypoint": "m.f"}, {"key": "a", "entrypoint": "m.f"}]}, 422, "not_runnable", "'a'"),
        ({"tasks": [{"key": "a", "entrypoint": "m.f", "group": "nowhere"}]}, 422, "not_runnable", "'nowhere'"),
        ({"tasks": [{"key": "a", "entrypoint": "m.f"}], "entrypoint": "m.f"}, 422, "invalid", "Invalid request"),
        ({}, 422, "invalid", "Invalid request"),
        ({"entrypoint": "rm -rf /"}, 422, "invalid", "Invalid request"),
        ({"entrypoint": "m.f", "kwargs": {"x": "\x00"}}, 422, "not_runnable", "NUL character"),
    ],
)  # fmt: skip
def test_invalid_job_is_refused_with_an_explanation(site, change, status, code, message) -> None:
    response = site.as_("writer").post("/v1/jobs", json={"name": "x"} | change)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.headers["content-type"] == "application/problem+json"
    assert message in response.json()["detail"]


def test_items_are_enqueued_and_found_by_idempotency_key(site) -> None:
    first = enqueue(site, {"type": "mail", "idempotency_key": "k1"}, {"type": "mail", "payload": {"n": 2}})
    again = enqueue(site, {"type": "mail", "idempotency_key": "k1"})
    assert again == first[:1]
    tasks = site.as_("reader").get("/v1/tasks", params={"type": "mail", "idempotency_key": "k1"}).json()["items"]
    assert [task["id"] for task in tasks] == again
    assert site.as_("other-reader").get("/v1/tasks", params={"type": "mail", "idempotency_key": "k1"}).json() == {
        "items": [], "next": None,
    }  # fmt: skip


def test_thousand_items_are_enqueued_at_once(site) -> None:
    ids = enqueue(site, *({"type": "bulk", "queue": "bulk", "payload": {"n": n}} for n in range(1000)))
    assert len(set(ids)) == 1000
    row = site.sql("SELECT org_id, kwargs FROM tasks WHERE id = $1", int(ids[7]))[0]
    assert (row["org_id"], json.loads(row["kwargs"])) == (site.org, {"n": 7})
    [bulk] = [queue for queue in site.as_("reader").get("/v1/queues").json() if queue["name"] == "bulk"]
    assert bulk["ready"] == 1000


def test_scale_of_a_queue_counts_waiting_and_running_tasks(site, http_worker) -> None:
    enqueue(site, *({"type": "scaled", "queue": "team/scaled"} for _ in range(3)))
    assert len(http_worker.claim(queues=["team/scaled"])) == 1
    site.sql("UPDATE tasks SET updated_at = now() - interval '1 minute' WHERE type = 'scaled' RETURNING id")
    load = site.as_("reader").get("/v1/queues/team/scaled/scale").json()
    assert 60 <= load.pop("oldest_seconds") < 120
    assert load == {"waiting": 2, "running": 1, "tasks": 3}
    nothing = {"waiting": 0, "running": 0, "tasks": 0, "oldest_seconds": 0.0}
    assert site.as_("other-reader").get("/v1/queues/team/scaled/scale").json() == nothing


def test_repeated_idempotent_request_is_performed_once(site) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    first = site.as_("writer").post("/v1/tasks", json={"items": [{"type": "once"}]}, headers=key)
    second = site.as_("writer").post("/v1/tasks", json={"items": [{"type": "once"}]}, headers=key)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    assert second.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert len(site.sql("SELECT id FROM tasks WHERE type = 'once'")) == 1
    other_body = site.as_("writer").post("/v1/tasks", json={"items": [{"type": "twice"}]}, headers=key)
    assert (other_body.status_code, other_body.json()["code"]) == (422, "idempotency_key_reused")
    other_route = site.as_("writer").post("/v1/jobs", json={"name": "once", "entrypoint": "m.f"}, headers=key)
    assert other_route.status_code == 201
    other_org = site.as_("other-writer").post("/v1/tasks", json={"items": [{"type": "once"}]}, headers=key)
    assert other_org.content != first.content


def test_failed_request_does_not_use_its_idempotency_key(site) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    bad = {"name": "x", "tasks": [{"key": "a", "entrypoint": "m.f", "depends_on": ["b"]}]}
    assert site.as_("writer").post("/v1/jobs", json=bad, headers=key).status_code == 422
    assert site.as_("writer").post("/v1/jobs", json={"name": "x", "entrypoint": "m.f"}, headers=key).status_code == 201


def test_concurrent_idempotent_request_is_refused(site) -> None:
    """The test holds the lock that the server would take."""
    key = str(uuid4())

    async def hold(connection):
        async with connection.transaction():
            await connection.fetchval(
                "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))", f"{site.org} POST /v1/tasks {key}"
            )
            return site.as_("writer").post(
                "/v1/tasks", json={"items": [{"type": "x"}]}, headers={"Idempotency-Key": key}
            )

    response = site.run(hold)
    assert (response.status_code, response.json()["code"]) == (409, "conflict")


def test_page_continues_after_the_previous_one(site) -> None:
    ids = enqueue(site, *({"type": "paged"} for _ in range(25)))
    reader = site.as_("reader")
    listed_ids, cursor = [], None
    while True:
        params = {"type": "paged", "limit": 10} | ({"cursor": cursor} if cursor else {})
        page = reader.get("/v1/tasks", params=params).json()
        listed_ids += [task["id"] for task in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert listed_ids == sorted(ids, key=int, reverse=True)


def test_task_is_shown_cancelled_and_cleared(site) -> None:
    [task_id] = enqueue(site, {"type": "one"})
    writer = site.as_("writer")
    shown = writer.get(f"/v1/tasks/{task_id}")
    assert shown.json()["attempts"] == []
    same = writer.get(f"/v1/tasks/{task_id}", headers={"If-None-Match": shown.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    assert writer.post(f"/v1/tasks/{task_id}/cancel").json() == {"outcome": "cancelled"}
    changed = writer.get(f"/v1/tasks/{task_id}", headers={"If-None-Match": shown.headers["etag"]})
    assert changed.json()["status"] == "CANCELLED"
    assert writer.post(f"/v1/tasks/{task_id}/clear").json() == {"count": 1, "ids": [task_id]}
    assert writer.get(f"/v1/tasks/{task_id}").json()["status"] == "PENDING"


def test_dead_letters_are_grouped_redriven_and_discarded(site) -> None:
    for which in ("first", "second"):
        enqueue(site, *({"type": f"dead-{which}", "queue": "dying", "max_attempts": 1} for _ in range(3)))
        claim(site, queues=["dying"], fail=f"Broken:{which}")
    enqueue(site, {"type": "dead-theirs", "queue": "dying", "max_attempts": 1}, role="other-writer")
    claim(site, queues=["dying"], fail="Broken:first")
    writer = site.as_("writer")
    groups = {group["fingerprint"]: group["count"] for group in writer.get("/v1/dead-letters/groups").json()}
    assert groups == {"Broken:first": 3, "Broken:second": 3}
    page = writer.get("/v1/dead-letters", params={"limit": 4}).json()
    rest = writer.get("/v1/dead-letters", params={"limit": 4, "cursor": page["next"]}).json()
    letters = [letter["id"] for letter in page["items"] + rest["items"]]
    assert len(set(letters)) == 6
    assert writer.post("/v1/dead-letters/redrive", json={}).status_code == 422
    back = writer.post("/v1/dead-letters/redrive", json={"fingerprint": "Broken:first"}).json()
    assert back["count"] == 3
    gone = writer.post("/v1/dead-letters/discard", json={"ids": [letters[0]]}).json()
    assert gone == {"count": 1, "ids": [letters[0]]}
    assert writer.get(f"/v1/tasks/{letters[0]}").json()["status"] == "FAILED"
    other_letters = site.as_("other-writer").get("/v1/dead-letters").json()["items"]
    assert [letter["type"] for letter in other_letters] == ["dead-theirs"]
    assert writer.post("/v1/dead-letters/redrive", json={"ids": [other_letters[0]["id"]]}).json()["count"] == 0
    assert writer.post("/v1/dead-letters/discard", json={"all": True}).json()["count"] == 2
    assert len(site.as_("other-writer").get("/v1/dead-letters").json()["items"]) == 1


def test_queue_is_limited_paused_and_resumed(site) -> None:
    enqueue(site, {"type": "x", "queue": "slow"})
    writer = site.as_("writer")
    assert writer.put("/v1/queues/slow", json={"max_running": 0, "rate_per_second": 2.5}).status_code == 204
    assert claim(site, queues=["slow"]) == []
    assert writer.put("/v1/queues/slow", json={}).status_code == 204
    assert writer.post("/v1/queues/slow/pause").status_code == 204
    assert claim(site, queues=["slow"]) == []
    [shown] = [queue for queue in writer.get("/v1/queues").json() if queue["name"] == "slow"]
    assert shown["paused_at"] is not None
    assert writer.post("/v1/queues/slow/resume").status_code == 204
    assert len(claim(site, queues=["slow"])) == 1
    assert [
        queue["name"] for queue in site.as_("other-reader").get("/v1/queues").json() if queue["name"] == "slow"
    ] == []


def test_shared_worker_hides_its_details_from_other_orgs(site) -> None:
    async def work(connection):
        return await queue.register_worker(connection, hostname="secret-host", pid=4711, queues=["a"])

    worker_id = str(site.run(work).id)
    for who, sees in (("reader", False), ("operator-reader", True)):
        [worker] = [item for item in site.as_(who).get("/v1/workers").json()["items"] if item["id"] == worker_id]
        assert (worker["hostname"] == "secret-host") == sees
        assert (worker["tasks_completed"] is not None) == sees
        assert worker["shared"]
    one = site.as_("reader").get(f"/v1/workers/{worker_id}")
    assert "secret-host" not in one.text


def test_log_is_read_in_parts_and_from_its_end(site) -> None:
    [task_id] = enqueue(site, {"type": "talker"})
    reader = site.as_("reader")
    assert reader.get(f"/v1/tasks/{task_id}/log").json() == {"text": "", "next_offset": 0, "ended": False}
    (site.logs / f"{task_id}.log").write_text("ä" * 50 + "\nlast line\n")
    part = reader.get(f"/v1/tasks/{task_id}/log", params={"limit": 5}).json()
    assert part["text"] == "ää"
    rest = reader.get(f"/v1/tasks/{task_id}/log", params={"offset": part["next_offset"]}).json()
    assert part["text"] + rest["text"] == "ä" * 50 + "\nlast line\n"
    assert reader.get(f"/v1/tasks/{task_id}/log", params={"offset": -10}).json()["text"] == "last line\n"
    assert site.as_("other-admin").get(f"/v1/tasks/{task_id}/log").status_code == 404


def test_log_path_reported_by_a_worker_is_not_opened(site) -> None:
    [task_id] = enqueue(site, {"type": "liar"})
    directory = site.logs.parent / "other"
    directory.mkdir()
    (directory / f"{task_id}.log").write_text("of another directory")
    values = get_snowflake_id(), str(directory)
    site.sql("INSERT INTO workers (id, hostname, pid, log_directory) VALUES ($1, 'x', 1, $2) RETURNING id", *values)
    row = "UPDATE tasks SET worker_id = $1 WHERE id = $2 RETURNING tasks.log_path"
    assert site.sql(row, values[0], int(task_id))[0]["log_path"] == f"{directory}/{task_id}.log"
    assert site.as_("reader").get(f"/v1/tasks/{task_id}/log").json()["text"] == ""


def test_log_is_followed_to_its_end(site) -> None:
    [task_id] = enqueue(site, {"type": "follow-me"})
    log = site.logs / f"{task_id}.log"
    log.write_text("one\n")
    with site.as_("reader").stream("GET", f"/v1/tasks/{task_id}/log/follow") as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith("data:")) == 'data: {"text": "one\\n", "next_offset": 4}'
        with log.open("a") as stream:
            stream.write("two\n")
        assert "two" in next(line for line in lines if line.startswith("data:"))
        site.as_("writer").post(f"/v1/tasks/{task_id}/cancel")
        assert "event: end" in list(lines)
