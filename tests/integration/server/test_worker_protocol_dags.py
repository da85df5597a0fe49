"""Worker protocol for tasks of DAGs: what they may read and write, and refusal of forged requests."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from aaiclick.catalog.execution.dataset_tables import DatasetLayout
from tests.integration.server.http_worker import HttpWorker, show

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
    """Deploy a DAG; returns the ids of its definition and generation."""
    answer = site.as_(role).post("/v1/dags/deploy", json={"text": DAG.format(name=name)})
    assert answer.status_code == 200, answer.text
    [row] = site.sql(
        "SELECT d.id, p.dataset_version FROM job_definitions d JOIN dag_version_datasets p USING (dag_version_id) "
        "WHERE d.dag_name = $1",
        name,
    )
    return str(row["id"]), str(row["dataset_version"])


def claim_of_dag(site, http_worker, name: str) -> dict[str, Any]:
    job = site.as_("writer").post(f"/v1/dags/{name}/run").json()["id"]
    tasks = http_worker.claim(10)
    return next(task["lease"] for task in tasks if task["job_id"] == job)


def test_dag_task_sees_its_definition_inputs_and_outputs(site, http_worker) -> None:
    definition, generation = deploy(site, "own")
    elsewhere, other_generation = deploy(site, "elsewhere")
    lease = claim_of_dag(site, http_worker, "own")
    for requested, of, status in (
        (definition, generation, 200),
        (elsewhere, other_generation, 404),
        (str(uuid4()), str(uuid4()), 404),
    ):
        answers = [
            http_worker.post("tasks/definition", lease=lease, definition=requested),
            http_worker.post("tasks/state", lease=lease, definition=requested, key="k"),
            http_worker.post("tasks/partitions", lease=lease, generation=of),
            http_worker.post("tasks/digest", lease=lease, generation=of),
        ]
        assert [answer.status_code for answer in answers] == [status] * 4, [answer.text for answer in answers]


def test_rows_are_published_only_with_a_taken_ticket(site, http_worker) -> None:
    """With a ticket from the future, later rows would count as older."""
    definition, generation = deploy(site, "ticketed")
    lease = claim_of_dag(site, http_worker, "ticketed")
    table = f"t{lease['task_id']}"
    http_worker.post("tasks/tables", action="reserve", tables=[{"table": table, "lease": lease}])
    taken = int(http_worker.post("tasks/ticket", lease=lease).json()["ticket"])
    for ticket in (taken + 1, 2**62, 2**63 - 1):
        answer = http_worker.post(
            "tasks/publish", lease=lease, generation=generation, ticket=str(ticket), table=table, rows=0
        )
        assert (answer.status_code, "never taken" in answer.text) == (422, True), answer.text
    assert site.sql("SELECT 1 FROM dataset_partitions WHERE dataset_version = $1", UUID(generation)) == []
    [row] = site.sql("SELECT dataset_uuid FROM dataset_versions WHERE id = $1", UUID(generation))
    update = {
        "dataset": str(row["dataset_uuid"]), "generation": generation, "ticket": taken + 1, "columns": {},
        "schema_hash": "h", "partitions": [],
    }  # fmt: skip
    refused = http_worker.post("tasks/complete", lease=lease, effects={"definition": definition, "updates": [update]})
    assert (refused.status_code, "never taken" in refused.text) == (422, True), refused.text


LAYOUT = DatasetLayout((("a", "Int64"),), "replace").to_json()
LEFT_BEHIND = ("dataset_partitions", "dataset_versions", "outbox", "column_lineage", "operator_state", "task_inputs")


def left_behind(site) -> list[list[Any]]:
    return [sorted(map(str, site.sql(f"SELECT * FROM {table}"))) for table in LEFT_BEHIND]


def test_forged_effects_are_refused_and_nothing_is_written(site, http_worker) -> None:
    """Invalid effects with a valid lease fail the attempt permanently.

    Other datasets, definitions and partitions of any organisation, tickets never taken, too many items. A malformed
    request leaves the task unchanged.
    """
    definition, generation = deploy(site, "forged")
    elsewhere, other_generation = deploy(site, "beside")
    abroad, foreign_generation = deploy(site, "abroad", "other-admin")
    [row] = site.sql("SELECT dataset_uuid FROM dataset_versions WHERE id = $1", UUID(generation))
    own = str(row["dataset_uuid"])
    datasets = {
        name: str(site.sql("SELECT dataset_uuid FROM dataset_versions WHERE id = $1", UUID(of))[0][0])
        for name, of in (("beside", other_generation), ("abroad", foreign_generation))
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
        {"lineage": {other_generation: []}},
        {"lineage": {generation: [["a", datasets["abroad"], "b"]]}},
        {"updates": [update(dataset=datasets["beside"], generation=other_generation)]},
        {"updates": [update(dataset=datasets["abroad"], generation=foreign_generation)]},
        {"updates": [update(generation=other_generation)]},
        {"updates": [update(partitions=[{"key": "de", "rows": 1}])]},
        {"updates": [update(changed=["de"])]},
        {"updates": [update(), update(ticket=2**62)]},
    ]
    unreadable = [
        {"updates": [update()] * 1_001},
        {"updates": [update(partitions=[{"key": str(n), "rows": 1} for n in range(10_002)])]},
        {"states": [[definition, str(n), {}] for n in range(10_001)]},
        {"lineage": {generation: [["a", own, "b"]] * 10_001}},
        {"definition": "none"},
        {"event": {"dataset": own}},
    ]
    before = left_behind(site)
    for change in forged:
        lease = claim_of_dag(site, http_worker, "forged")
        answer = http_worker.post("tasks/complete", lease=lease, effects={"definition": definition, **change})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), (change, answer.text)
        assert show(site, lease["task_id"])["status"] == "FAILED"
        again = http_worker.post("tasks/complete", lease=lease, effects={"definition": definition})
        assert (again.status_code, again.json()["code"]) == (409, "lease_lost")
    lease = claim_of_dag(site, http_worker, "forged")
    for change in unreadable:
        answer = http_worker.post("tasks/complete", lease=lease, effects={"definition": definition, **change})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), change
    completion = {
        "lease": lease,
        "effects": {"definition": definition, "updates": [update(generation=other_generation)]},
    }
    both = http_worker.post("tasks/exchange", worker_id=http_worker.id, limit=0, completed=[completion])
    assert (both.status_code, show(site, lease["task_id"])["status"]) == (200, "FAILED")
    assert left_behind(site) == before


def test_lost_lease_of_a_dag_task_writes_nothing(site, http_worker) -> None:
    """Even if everything else in the request is valid."""
    definition, generation = deploy(site, "late")
    old = claim_of_dag(site, http_worker, "late")
    other_worker = HttpWorker(site, "other-worker")
    ticket = http_worker.post("tasks/ticket", lease=old).json()["ticket"]
    table = f"t{old['task_id']}"
    http_worker.post("tasks/tables", action="reserve", tables=[{"table": table, "lease": old}])
    good = {"definition": definition, "states": [[definition, "cursor", {"n": 1}]]}
    publication = {"generation": generation, "ticket": ticket, "table": table, "rows": 0}
    before = left_behind(site)

    def refused(who: HttpWorker, lease: dict[str, Any]) -> None:
        answers = [
            who.post("tasks/complete", lease=lease, effects=good),
            who.post("tasks/publish", lease=lease, **publication),
            who.post("tasks/ticket", lease=lease),
            who.post("tasks/state", lease=lease, definition=definition, key="cursor"),
        ]
        assert [(item.status_code, item.json()["code"]) for item in answers] == [(409, "lease_lost")] * 4

    refused(other_worker, old)
    elsewhere = http_worker.post("tasks/publish", lease=old, **publication, partition="de")
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (404, "not_found")
    assert http_worker.post("tasks/release", lease=old).status_code == 204
    refused(http_worker, old)
    assert left_behind(site) == before
    [new] = [item["lease"] for item in http_worker.claim(10) if item["lease"]["task_id"] == old["task_id"]]
    refused(http_worker, old | {"token": str(uuid4())})
    assert left_behind(site) == before
    assert http_worker.post("tasks/complete", lease=new, effects=good).status_code == 204
    assert left_behind(site) != before


def test_emissions_are_fenced_and_limited_to_outputs(site, http_worker) -> None:
    definition, generation = deploy(site, "emitting")
    elsewhere, other_generation = deploy(site, "not-emitting")
    lease = claim_of_dag(site, http_worker, "emitting")
    [row] = site.sql("SELECT dataset_uuid FROM dataset_versions WHERE id = $1", UUID(generation))
    [other] = site.sql("SELECT dataset_uuid FROM dataset_versions WHERE id = $1", UUID(other_generation))
    ticket = int(http_worker.post("tasks/ticket", lease=lease).json()["ticket"])
    update = {
        "dataset": str(row["dataset_uuid"]), "generation": generation, "ticket": ticket, "columns": LAYOUT,
        "schema_hash": "h", "partitions": [{"key": "", "rows": 1}], "changed": [""],
    }  # fmt: skip

    def emit(lease=lease, cursor="1", client=http_worker, definition=definition, **changes: Any):
        effects = {"definition": definition, "updates": [update | changes]}
        return client.post("tasks/events", lease=lease, cursor=cursor, effects=effects)

    before = left_behind(site)
    refused = {
        "another token": emit(lease=lease | {"token": str(uuid4())}),
        "another attempt": emit(lease=lease | {"attempt": lease["attempt"] + 1}),
        "another org": emit(client=HttpWorker(site, "other-worker")),
        "another definition": emit(definition=elsewhere),
        "another dataset": emit(dataset=str(other["dataset_uuid"]), generation=other_generation),
        "another generation": emit(generation=other_generation),
        "a partition": emit(partitions=[{"key": "de", "rows": 1}]),
        "no columns": emit(columns={}),
        "a future ticket": emit(ticket=2**62),
        "no cursor": emit(cursor=""),
        "a reserved cursor": emit(cursor="ticket-1"),
        "a long cursor": emit(cursor="x" * 501),
    }
    assert {
        name: answer.status_code for name, answer in refused.items() if answer.status_code not in (404, 409, 422)
    } == {}
    assert left_behind(site) == before
    assert emit().status_code == 204
    assert emit().status_code == 204, "it may be repeated"
    events = site.sql("SELECT job_id, cursor FROM outbox WHERE payload ->> 'generation' = $1", generation)
    assert [event["cursor"] for event in events] == ["1", "1"]
    assert http_worker.post("tasks/complete", lease=lease, effects={"definition": definition}).status_code == 204
    assert emit().json()["code"] == "lease_lost"
