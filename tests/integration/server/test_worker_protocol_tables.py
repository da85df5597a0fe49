"""Worker protocol for tables: ownership, references and refusals."""

from __future__ import annotations

import asyncio

from aaiclick.data import DataContext, create_object_from_value
from aaiclick.orchestration.tenant_databases import TenantDatabases
from aaiclick.server_addresses import parse_clickhouse_url
from tests.integration.server.http_worker import HttpWorker, enqueue, show


def test_object_of_another_organisation_is_not_found(site, http_worker) -> None:
    """Neither as an argument nor as a table that an attempt reads, returns or names."""
    enqueue(site, "tables")
    enqueue(site, "tables", "other-writer")
    other_worker = HttpWorker(site, "other-worker")
    [own_task], [other_task] = http_worker.claim(queues=["tables"]), other_worker.claim(queues=["tables"])
    table = f"t{own_task['lease']['task_id']}"
    wish = [{"table": table, "lease": own_task["lease"]}]
    assert http_worker.post("tasks/tables", action="reserve", tables=wish).json()["tables"] == [
        {"lease_lost": False, "is_unknown": False}
    ]
    foreign = [{"table": table, "lease": other_task["lease"]}]
    assert other_worker.post("tasks/tables", action="hold", tables=foreign).json()["tables"] == [
        {"lease_lost": False, "is_unknown": True}
    ]
    items = {"items": [{"type": "t", "payload": {"x": {"object_type": "object", "table_id": table}}}]}
    job = {"name": "j", "entrypoint": "m.f", "kwargs": items["items"][0]["payload"]}
    for path, body in (("/v1/tasks", items), ("/v1/jobs", job)):
        assert site.as_("other-writer").post(path, json=body).status_code == 404
        assert site.as_("writer").post(path, json=body).status_code == 201
    before = site.sql("SELECT count(*) FROM table_references WHERE table_name = $1", table)[0]["count"]
    assert before == 3  # the attempt, the item, the job
    returned = {"object_type": "object", "table_id": table}
    answer = other_worker.post("tasks/complete", lease=other_task["lease"], result=[returned])
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert table in answer.json()["detail"]
    assert site.sql("SELECT count(*) FROM table_references WHERE table_name = $1", table)[0]["count"] == before


def test_result_with_a_table_that_is_not_held_is_refused(site, http_worker) -> None:
    """An unknown table and a released one are refused; its own table and that of its argument are accepted."""
    maker = enqueue(site, "held")
    [claimed] = http_worker.claim(queues=["held"])
    argument_table = f"t{maker}"
    http_worker.post("tasks/tables", action="reserve", tables=[{"table": argument_table, "lease": claimed["lease"]}])
    argument = {"object_type": "object", "table_id": argument_table}
    ids = [enqueue(site, "held", payload={"x": argument}) for _ in range(4)]
    leases = {item["lease"]["task_id"]: item["lease"] for item in http_worker.claim(4, queues=["held"])}
    own = {task_id: f"t{task_id}" for task_id in ids}
    table_requests = [{"table": own[item], "lease": leases[item]} for item in ids]
    http_worker.post("tasks/tables", action="reserve", tables=table_requests)
    never, released, batched, honest = ids
    http_worker.post("tasks/tables", action="release", tables=[table_requests[1]])
    for task_id, named in ((never, [own[never], "t998"]), (released, [own[released]])):
        assert http_worker.post("tasks/complete", lease=leases[task_id], tables=named).status_code == 422
    completions = [
        {"lease": leases[batched], "tables": ["t999"]},
        {"lease": leases[honest], "result": [argument], "tables": [own[honest], argument_table]},
    ]
    done = http_worker.post("tasks/exchange", worker_id=http_worker.id, limit=0, completed=completions).json()
    assert sorted(done["accepted"]) == sorted([batched, honest])
    assert [show(site, item)["status"] for item in ids] == ["FAILED", "FAILED", "FAILED", "COMPLETED"]
    assert show(site, batched)["result"] is None
    assert "t999" in show(site, batched)["error"]
    held = site.sql("SELECT owner_id, table_name FROM table_references WHERE owner IN ('RESULT', 'ATTEMPT')")
    assert {row["table_name"] for row in held if str(row["owner_id"]) in ids} == {own[honest], argument_table}
    assert site.sql("SELECT FROM table_refcounts WHERE table_name IN ('t998', 't999')") == []


def test_malformed_table_reference_is_refused(site) -> None:
    for table in ("380674270820147200", "t", "tx", "named_", "", 7, None):
        payload = {"x": [{"object_type": "object", "table_id": table}]}
        answer = site.as_("writer").post("/v1/tasks", json={"items": [{"type": "t", "payload": payload}]})
        assert answer.status_code == 422, (table, answer.text)
        job = {"name": "j", "entrypoint": "m.f", "kwargs": payload}
        assert site.as_("writer").post("/v1/jobs", json=job).status_code == 422
    named = {"x": {"object_type": "view", "table_id": "named_sales"}}
    assert enqueue(site, "references", payload=named)


async def make_named(site, *orgs) -> None:
    """Create an Object `sales` in the database of each organisation."""
    admin = parse_clickhouse_url(site.environment["AAICLICK_CLICKHOUSE_URL"])
    for org in orgs:
        async with DataContext(await TenantDatabases(admin).ensure_database(org)):
            await create_object_from_value([1], name="sales")


def test_named_objects_of_two_organisations_are_separate(site, http_worker) -> None:
    """Unknown tables and tables that cannot be named are refused."""
    enqueue(site, "names")
    enqueue(site, "names", "other-writer")
    other_worker = HttpWorker(site, "other-worker")
    [own_task], [other_task] = http_worker.claim(queues=["names"]), other_worker.claim(queues=["names"])
    names = "SELECT table_name FROM table_references WHERE owner = 'NAME'"

    def name_status(worker, task, table: str = "named_sales", name: str | None = "sales") -> int:
        return worker.post("tasks/table-name", lease=task["lease"], table=table, name=name).status_code

    assert [name_status(http_worker, own_task), name_status(other_worker, other_task)] == [404, 404]
    asyncio.run(make_named(site, site.org, site.other))
    assert [name_status(http_worker, own_task, *other) for other in (("t1",), ("t1", None), ("named_sales", "x"))] == [
        404
    ] * 3
    assert site.sql(names) == []
    assert [
        name_status(http_worker, own_task),
        name_status(other_worker, other_task),
        name_status(other_worker, other_task, name=None),
    ] == [204] * 3
    assert [row["table_name"] for row in site.sql(names)] == [f"{site.org}.named_sales"]


def test_completion_without_tables_releases_all_tables(site, http_worker) -> None:
    """Whichever way it completes; the table of another attempt stays."""
    ids = [enqueue(site, "forgetful") for _ in range(3)]
    one, two, three = (task["lease"] for task in http_worker.claim(3, queues=["forgetful"]))
    table_requests = [{"table": f"t{lease['task_id']}", "lease": lease} for lease in (one, two, three)]
    http_worker.post("tasks/tables", action="reserve", tables=table_requests)
    assert http_worker.post("tasks/complete", lease=one).status_code == 204
    done = http_worker.post("tasks/exchange", worker_id=http_worker.id, limit=0, completed=[{"lease": two}]).json()
    assert done["accepted"] == [two["task_id"]]
    left = site.sql(
        "SELECT owner_id FROM table_references WHERE owner_id = ANY ($1)", [int(task_id) for task_id in ids]
    )
    assert [row["owner_id"] for row in left] == [int(three["task_id"])]


def test_shared_clickhouse_credential_is_not_issued_to_workers(site, http_worker) -> None:
    """The embedded ClickHouse cannot create users: they are in a file."""
    enqueue(site, "secret")
    answer = http_worker.post("tasks/claim", worker_id=http_worker.id, queues=["secret"]).json()
    assert answer["clickhouse"] is None
    assert "cannot have a user per organisation" in answer["no_clickhouse"]
    operator = HttpWorker(site, "operator-worker")
    enqueue(site, "secret", "operator-writer")
    response = operator.post("tasks/claim", worker_id=operator.id, queues=["secret"]).json()
    assert response["clickhouse"]["database"]
