"""The task protocol as a worker without a database speaks it: fenced by leases, walled off by organisation."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from uuid import UUID, uuid4

import pytest

from aaiclick.data import DataContext, create_object_from_value
from aaiclick.orchestration.tenants import Tenants
from aaiclick.settings import parse_clickhouse_url


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


DAG = """
name: {name}
jobs:
  - name: fetch
    activation: source
    source: {{kind: manual}}
    operator: python
    config: {{function: "shop:fetch"}}
    outputs: [rows]
"""


def deploy(site, name: str, role: str = "admin") -> tuple[str, str]:
    """A DAG; returns its definition and its generation."""
    answer = site.as_(role).post("/v1/dags/deploy", json={"text": DAG.format(name=name)})
    assert answer.status_code == 200, answer.text
    [row] = site.sql(
        "SELECT d.id, p.dataset_version FROM job_definitions d JOIN dag_version_datasets p USING (dag_version_id) "
        "WHERE d.dag_name = $1",
        name,
    )
    return str(row["id"]), str(row["dataset_version"])


def claim_of_dag(site, hand, name: str) -> dict[str, Any]:
    job = site.as_("writer").post(f"/v1/dags/{name}/run").json()["id"]
    tasks = hand.claim(10)
    return next(task["lease"] for task in tasks if task["job_id"] == job)


def test_a_task_of_a_dag_sees_its_own_definition_and_what_that_reads_and_makes(site, hand) -> None:
    definition, generation = deploy(site, "own")
    elsewhere, others = deploy(site, "elsewhere")
    lease = claim_of_dag(site, hand, "own")
    for asked, of, status in (
        (definition, generation, 200),
        (elsewhere, others, 404),
        (str(uuid4()), str(uuid4()), 404),
    ):
        answers = [
            hand.say("/v1/task/definition", lease=lease, definition=asked),
            hand.say("/v1/task/state", lease=lease, definition=asked, key="k"),
            hand.say("/v1/task/partitions", lease=lease, generation=of),
            hand.say("/v1/task/digest", lease=lease, generation=of),
        ]
        assert [answer.status_code for answer in answers] == [status] * 4, [answer.text for answer in answers]


def test_rows_are_put_in_place_with_a_ticket_that_was_taken(site, hand) -> None:
    """One from the future would make everything that comes after it older."""
    definition, generation = deploy(site, "ticketed")
    lease = claim_of_dag(site, hand, "ticketed")
    table = f"t{lease['task_id']}"
    hand.say("/v1/task/tables", deed="reserve", tables=[{"table": table, "lease": lease}])
    taken = int(hand.say("/v1/task/ticket", lease=lease).json()["ticket"])
    for ticket in (taken + 1, 2**62, 10**19 - 1):
        answer = hand.say(
            "/v1/task/publish", lease=lease, generation=generation, ticket=str(ticket), table=table, rows=0
        )
        assert (answer.status_code, "never taken" in answer.text) == (422, True), answer.text
    assert site.sql("SELECT 1 FROM dataset_partitions WHERE dataset_version = $1", UUID(generation)) == []
    [row] = site.sql("SELECT dataset_uuid FROM dataset_versions WHERE id = $1", UUID(generation))
    update = {
        "dataset": str(row["dataset_uuid"]), "generation": generation, "ticket": taken + 1, "columns": {},
        "schema_hash": "h", "partitions": [],
    }  # fmt: skip
    refused = hand.say("/v1/task/complete", lease=lease, effects={"definition": definition, "updates": [update]})
    assert (refused.status_code, "never taken" in refused.text) == (422, True), refused.text


LEFT_BEHIND = ("dataset_partitions", "dataset_versions", "outbox", "column_lineage", "operator_state", "task_inputs")


def left_behind(site) -> list[list[Any]]:
    return [sorted(map(str, site.sql(f"SELECT * FROM {table}"))) for table in LEFT_BEHIND]


def test_forged_effects_are_refused_and_nothing_is_written(site, hand) -> None:
    """With a lease that holds: about other datasets, definitions and partitions, of one's own organisation or not, with
    tickets that nobody took, more than anybody has. Each ends its attempt for good; what cannot be read at all leaves
    it as it was.
    """
    definition, generation = deploy(site, "forged")
    elsewhere, others = deploy(site, "beside")
    abroad, theirs = deploy(site, "abroad", "other-admin")
    [row] = site.sql("SELECT dataset_uuid FROM dataset_versions WHERE id = $1", UUID(generation))
    own = str(row["dataset_uuid"])
    datasets = {
        name: str(site.sql("SELECT dataset_uuid FROM dataset_versions WHERE id = $1", UUID(of))[0][0])
        for name, of in (("beside", others), ("abroad", theirs))
    }
    moment = "2026-01-01T00:00:00Z"

    def update(**changes: Any) -> dict[str, Any]:
        return {
            "dataset": own, "generation": generation, "ticket": 0, "columns": {}, "schema_hash": "h",
            "partitions": [{"key": "", "rows": 1}], "changed": [""], **changes,
        }  # fmt: skip

    forged = [
        {"definition": elsewhere},
        {"definition": abroad},
        {"build": str(uuid4())},
        {"states": [[elsewhere, "cursor", {}]]},
        {"states": [[abroad, "cursor", {}]]},
        {"inputs": [[datasets["beside"], "", moment]]},
        {"lineage": {datasets["beside"]: []}},
        {"lineage": {own: [["a", datasets["abroad"], "b"]]}},
        {"updates": [update(dataset=datasets["beside"], generation=others)]},
        {"updates": [update(dataset=datasets["abroad"], generation=theirs)]},
        {"updates": [update(generation=others)]},
        {"updates": [update(partitions=[{"key": "de", "rows": 1}])]},
        {"updates": [update(changed=["de"])]},
        {"updates": [update(), update(ticket=2**62)]},
    ]
    unreadable = [
        {"updates": [update()] * 1_001},
        {"updates": [update(partitions=[{"key": str(n), "rows": 1} for n in range(10_002)])]},
        {"states": [[definition, str(n), {}] for n in range(10_001)]},
        {"lineage": {own: [["a", own, "b"]] * 10_001}},
        {"definition": "none"},
        {"event": {"dataset": own}},
    ]
    before = left_behind(site)
    for change in forged:
        lease = claim_of_dag(site, hand, "forged")
        answer = hand.say("/v1/task/complete", lease=lease, effects={"definition": definition, **change})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), (change, answer.text)
        assert show(site, lease["task_id"])["status"] == "FAILED"
        again = hand.say("/v1/task/complete", lease=lease, effects={"definition": definition})
        assert (again.status_code, again.json()["code"]) == (409, "lease_lost")
    lease = claim_of_dag(site, hand, "forged")
    for change in unreadable:
        answer = hand.say("/v1/task/complete", lease=lease, effects={"definition": definition, **change})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), change
    said = {"lease": lease, "effects": {"definition": definition, "updates": [update(generation=others)]}}
    both = hand.say("/v1/task/exchange", worker_id=hand.id, limit=0, completed=[said])
    assert (both.status_code, show(site, lease["task_id"])["status"]) == (200, "FAILED")
    assert left_behind(site) == before


def test_who_lost_the_lease_of_a_task_of_a_dag_writes_nothing(site, hand) -> None:
    """However good the rest of it is, and whoever says it."""
    definition, generation = deploy(site, "late")
    old = claim_of_dag(site, hand, "late")
    stranger = Hand(site, "other-worker")
    ticket = hand.say("/v1/task/ticket", lease=old).json()["ticket"]
    table = f"t{old['task_id']}"
    hand.say("/v1/task/tables", deed="reserve", tables=[{"table": table, "lease": old}])
    good = {"definition": definition, "states": [[definition, "cursor", {"n": 1}]]}
    publication = {"generation": generation, "ticket": ticket, "table": table, "rows": 0}
    before = left_behind(site)

    def refused(who: Hand, lease: dict[str, Any]) -> None:
        answers = [
            who.say("/v1/task/complete", lease=lease, effects=good),
            who.say("/v1/task/publish", lease=lease, **publication),
            who.say("/v1/task/ticket", lease=lease),
            who.say("/v1/task/state", lease=lease, definition=definition, key="cursor"),
        ]
        assert [(each.status_code, each.json()["code"]) for each in answers] == [(409, "lease_lost")] * 4

    refused(stranger, old)
    elsewhere = hand.say("/v1/task/publish", lease=old, **publication, partition="de")
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (404, "not_found")
    assert hand.say("/v1/task/release", lease=old).status_code == 204
    refused(hand, old)
    assert left_behind(site) == before
    [new] = [each["lease"] for each in hand.claim(10) if each["lease"]["task_id"] == old["task_id"]]
    refused(hand, old | {"token": str(uuid4())})
    assert left_behind(site) == before
    assert hand.say("/v1/task/complete", lease=new, effects=good).status_code == 204
    assert left_behind(site) != before


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
    returned = {"object_type": "object", "table_id": table}
    answer = stranger.say("/v1/task/complete", lease=theirs["lease"], result=[returned])
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert table in answer.json()["detail"]
    assert site.sql("SELECT count(*) FROM table_references WHERE table_name = $1", table)[0]["count"] == before


def test_results_with_tables_that_the_attempt_does_not_hold_are_refused(site, hand) -> None:
    """One that was never there, one that it had and gave back; its own and its argument's are its to return."""
    maker = enqueue(site, "held")
    [made] = hand.claim(queues=["held"])
    given = f"t{maker}"
    hand.say("/v1/task/tables", deed="reserve", tables=[{"table": given, "lease": made["lease"]}])
    argument = {"object_type": "object", "table_id": given}
    ids = [enqueue(site, "held", payload={"x": argument}) for _ in range(4)]
    leases = {each["lease"]["task_id"]: each["lease"] for each in hand.claim(4, queues=["held"])}
    own = {task_id: f"t{task_id}" for task_id in ids}
    wishes = [{"table": own[each], "lease": leases[each]} for each in ids]
    hand.say("/v1/task/tables", deed="reserve", tables=wishes)
    never, released, batched, honest = ids
    hand.say("/v1/task/tables", deed="release", tables=[wishes[1]])
    for task_id, named in ((never, [own[never], "t998"]), (released, [own[released]])):
        assert hand.say("/v1/task/complete", lease=leases[task_id], tables=named).status_code == 422
    said = [
        {"lease": leases[batched], "tables": ["t999"]},
        {"lease": leases[honest], "result": [argument], "tables": [own[honest], given]},
    ]
    done = hand.say("/v1/task/exchange", worker_id=hand.id, limit=0, completed=said).json()
    assert sorted(done["accepted"]) == sorted([batched, honest])
    assert [show(site, each)["status"] for each in ids] == ["FAILED", "FAILED", "FAILED", "COMPLETED"]
    assert show(site, batched)["result"] is None
    assert "t999" in show(site, batched)["error"]
    held = site.sql("SELECT owner_id, table_name FROM table_references WHERE owner IN ('RESULT', 'ATTEMPT')")
    assert {row["table_name"] for row in held if str(row["owner_id"]) in ids} == {own[honest], given}
    assert site.sql("SELECT FROM table_refcounts WHERE table_name IN ('t998', 't999')") == []


def test_a_reference_that_is_none_is_refused(site) -> None:
    for table in ("380674270820147200", "t", "tx", "named_", "", 7, None):
        given = {"x": [{"object_type": "object", "table_id": table}]}
        answer = site.as_("writer").post("/v1/tasks", json={"items": [{"type": "t", "payload": given}]})
        assert answer.status_code == 422, (table, answer.text)
        job = {"name": "j", "entrypoint": "m.f", "kwargs": given}
        assert site.as_("writer").post("/v1/jobs", json=job).status_code == 422
    named = {"x": {"object_type": "view", "table_id": "named_sales"}}
    assert enqueue(site, "references", payload=named)


async def make_named(site, *orgs) -> None:
    """An Object `sales` in the database of each."""
    admin = parse_clickhouse_url(site.environment["AAICLICK_CLICKHOUSE_URL"])
    for org in orgs:
        async with DataContext(await Tenants(admin).ready(org)):
            await create_object_from_value([1], name="sales")


def test_names_of_two_organisations_do_not_meet(site, hand) -> None:
    """And nobody names what is not there, or is not what names are given to."""
    enqueue(site, "names")
    enqueue(site, "names", "other-writer")
    stranger = Hand(site, "other-worker")
    [mine], [theirs] = hand.claim(queues=["names"]), stranger.claim(queues=["names"])
    names = "SELECT table_name FROM table_references WHERE owner = 'NAME'"

    def says(who, task, table: str = "named_sales", name: str | None = "sales") -> int:
        return who.say("/v1/task/name", lease=task["lease"], table=table, name=name).status_code

    assert [says(hand, mine), says(stranger, theirs)] == [404, 404]
    asyncio.run(make_named(site, site.org, site.other))
    assert [says(hand, mine, *other) for other in (("t1",), ("t1", None), ("named_sales", "x"))] == [404] * 3
    assert site.sql(names) == []
    assert [says(hand, mine), says(stranger, theirs), says(stranger, theirs, name=None)] == [204] * 3
    assert [row["table_name"] for row in site.sql(names)] == [f"{site.org}.named_sales"]


def test_who_names_no_tables_in_the_end_lets_go_of_all(site, hand) -> None:
    """However it says that it is done; the table of another attempt stays."""
    ids = [enqueue(site, "forgetful") for _ in range(3)]
    one, two, three = (task["lease"] for task in hand.claim(3, queues=["forgetful"]))
    wishes = [{"table": f"t{lease['task_id']}", "lease": lease} for lease in (one, two, three)]
    hand.say("/v1/task/tables", deed="reserve", tables=wishes)
    assert hand.say("/v1/task/complete", lease=one).status_code == 204
    done = hand.say("/v1/task/exchange", worker_id=hand.id, limit=0, completed=[{"lease": two}]).json()
    assert done["accepted"] == [two["task_id"]]
    left = site.sql("SELECT owner_id FROM table_references WHERE owner_id = ANY ($1)", [int(each) for each in ids])
    assert [row["owner_id"] for row in left] == [int(three["task_id"])]


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
