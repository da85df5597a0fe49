"""The task protocol and tables: whose they are, who holds them, and what is refused."""

from __future__ import annotations

import asyncio

from aaiclick.data import DataContext, create_object_from_value
from aaiclick.orchestration.tenants import Tenants
from aaiclick.targets import parse_clickhouse_url
from tests.integration.server.hand import Hand, enqueue, show


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
