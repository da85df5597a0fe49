"""Approvals through API, web UI, command lines and one-time links."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.enums import DEFAULT_ORG_ID
from tests.integration.server.browser import Browser

TASK = (
    "INSERT INTO tasks (id, org_id, type, readiness, available_at, kwargs)"
    " VALUES ($1, $2, 'x', 'TIME', now() + interval '1 h', '{\"aaiclick_wait\": {}}')"
)
ASK = (
    "INSERT INTO approvals (id, org_id, task_id, attempt, expires_at, title, role, form, shown)"
    " VALUES ($1, $2, $3, 0, now() + interval '1 h', 'Pay?', $4, $5, $6)"
)
FORM = {"properties": {"euros": {"type": "integer", "title": "Euros", "minimum": 1}}, "required": ["euros"]}
SHOWN = {"columns": ["city", "n"], "rows": [["Köln <b>", 1], ["Rom", None]], "total": 2}


def insert_approval(site, *, role: str = "writer", org=DEFAULT_ORG_ID, form=None, shown=None) -> int:
    """An approval of a new task that waits for it; `form` and `shown` may be any JSON."""
    task, approval = get_snowflake_id(), get_snowflake_id()
    site.sql(TASK, task, org)
    site.sql(ASK, approval, org, task, role, json.dumps(form or FORM), json.dumps(shown or SHOWN))
    return approval


def ask(site, role: str = "writer", org=DEFAULT_ORG_ID) -> int:
    return insert_approval(site, role=role, org=org)


def outcome(site, approval: int) -> tuple[str, dict[str, object]]:
    [row] = site.sql(
        "SELECT t.readiness::text, t.kwargs::text FROM approvals a JOIN tasks t ON t.id = a.task_id WHERE a.id = $1",
        approval,
    )
    return row["readiness"], json.loads(row["kwargs"])["aaiclick_wait"].get("approval")


@pytest.mark.parametrize("approve", [True, False])
def test_channels_record_the_same_decision_and_audit_entry(site, command, browser, approve) -> None:
    recorded = {}
    for channel in ("api", "ui", "local", "remote"):
        approval = ask(site)
        values = {"euros": 7} if approve else {}
        action = "approve" if approve else "reject"
        if channel == "api":
            body = {"approve": approve, "reason": "ok", "values": values}
            response = site.as_("operator-admin").post(f"/v1/approvals/{approval}/decide", json=body)
            assert response.json()["state"] == ("approved" if approve else "rejected"), response.text
        elif channel == "ui":
            fields = {"csrf": browser.csrf, "decision": action, "reason": "ok", "value:euros": "7"}
            response = browser.client.post(f"/approvals/{approval}/decide", data=fields)
            assert response.status_code == 303, response.text
        else:
            options = ("--value", "euros=7") if approve else ()
            role = None if channel == "local" else "operator-admin"
            result = command("approvals", action, str(approval), "--reason", "ok", *options, role=role)
            assert result.exception is None, result.exception
        readiness, fields = outcome(site, approval)
        by = fields.pop("by")
        [entry] = site.sql("SELECT action, actor, detail FROM audit_log WHERE target = $1", str(approval))
        assert entry["actor"] == by
        recorded[channel] = readiness, fields, entry["action"]
    assert recorded["api"] == ("READY", {"approved": approve, "reason": "ok", "values": values}, f"approval.{action}")
    assert all(other == recorded["api"] for other in recorded.values())


def test_pages_show_the_form_and_the_data(site, browser, command) -> None:
    approval = ask(site)
    assert "Pay?" in browser.client.get("/approvals").text
    text = browser.client.get(f"/approvals/{approval}").text
    assert 'name="value:euros"' in text
    assert "Köln &lt;b&gt;" in text
    assert "2 of 2 rows" in text
    invalid = {"csrf": browser.csrf, "decision": "approve", "reason": "hm", "value:euros": "0"}
    refused = browser.client.post(f"/approvals/{approval}/decide", data=invalid)
    assert "euros: Input should be greater than or equal to 1." in refused.text
    assert 'value="hm"' in refused.text
    assert json.loads(command("approvals", "show", str(approval), "-o", "json").output)["shown"]["total"] == 2
    assert "Köln" in command("approvals", "show", str(approval)).output
    assert str(approval) in command("approvals", "ls").output


def test_two_people_at_once_make_one_decision(site) -> None:
    client = site.as_("operator-admin")
    for _ in range(5):
        approval = ask(site)
        body = {"approve": True, "values": {"euros": 7}}
        url = f"/v1/approvals/{approval}/decide"
        with ThreadPoolExecutor(2) as pool:
            started = [pool.submit(client.post, url, json=body) for _ in range(2)]
        responses = [future.result() for future in started]
        assert sorted(response.status_code for response in responses) == [200, 409]
        [late] = [response for response in responses if response.status_code == 409]
        assert "'Pay?' was approved by key aai_" in late.json()["detail"]


def test_role_decides_and_others_are_refused(site, command) -> None:
    for name in ("finance", "sales"):
        command("role", "create", name)
    approval = ask(site, "finance")
    body = {"approve": False}
    url = f"/v1/approvals/{approval}"
    writer = site.as_("operator-writer")
    assert writer.get(url).json()["may_decide"] is False
    refused = writer.post(f"{url}/decide", json=body)
    assert (refused.status_code, "the role 'finance'" in refused.text) == (403, True)
    assert writer.post(f"{url}/links", json={"recipient": "eve"}).status_code == 403
    assert site.as_("operator-reader").post(f"/v1/approvals/{ask(site)}/decide", json=body).status_code == 403
    assert site.as_("operator-reader").post(f"/v1/approvals/{ask(site, 'reader')}/decide", json=body).status_code == 200
    assert site.as_("operator-admin").post(f"{url}/decide", json=body).status_code == 200


def test_member_of_the_role_decides(site, command) -> None:
    assert command("role", "create", "auditors").exception is None
    ada = {"external_id": "ada", "role": "reader"}
    assert site.as_("operator-admin").post("/v1/users", json=ada).status_code == 201
    approval = ask(site, "auditors")
    [user] = site.sql("SELECT id, org_id FROM users WHERE external_id = 'ada'")

    async def decide(connection):
        from aaiclick.api.approvals import DecideRequest
        from aaiclick.operations import approvals
        from aaiclick.operations.actor import Actor

        actor = Actor(user["org_id"], f"user {user['id']}", frozenset({"reader"}))
        return await approvals.decide_approval(connection, actor, approval, DecideRequest(approve=False))

    with pytest.raises(Exception, match="which this credential does not have"):
        site.run(decide)
    assert command("role", "grant", "auditors", "ada").exception is None
    assert site.run(decide).decided_by == f"user {user['id']}"


def test_organisations_do_not_see_each_other(site) -> None:
    approval = ask(site, org=site.org)
    other = site.as_("other-admin")
    assert str(approval) in site.as_("admin").get("/v1/approvals").text
    assert str(approval) not in other.get("/v1/approvals?everything=true").text
    assert other.get(f"/v1/approvals/{approval}").status_code == 404
    assert other.post(f"/v1/approvals/{approval}/decide", json={"approve": True}).status_code == 404
    assert other.post(f"/v1/approvals/{approval}/links", json={"recipient": "eve"}).status_code == 404


def test_link_decides_once_without_an_account(site, browser) -> None:
    approval = ask(site)
    response = site.as_("operator-writer").post(
        f"/v1/approvals/{approval}/links", json={"recipient": "ada@example.org"}
    )
    link = response.json()
    assert link["url"] == f"/approve/{link['token']}"
    guest = Browser(site, None)
    page = guest.client.get(link["url"])
    assert "Köln &lt;b&gt;" in page.text
    assert "/tasks/" not in page.text
    fields = {"csrf": guest.csrf, "decision": "approve", "value:euros": "7"}
    assert guest.client.post(link["url"], data=fields | {"csrf": "x"}).status_code == 403
    assert guest.client.post(link["url"], data=fields).status_code == 303
    assert outcome(site, approval)[1]["by"] == "link ada@example.org"
    assert 'id="decide"' not in guest.client.get(link["url"]).text
    body = {"token": link["token"], "decision": {"approve": False}}
    late = site.as_(None).post("/v1/approval-links/decide", json=body)
    assert (late.status_code, "was approved by link ada@example.org" in late.text) == (409, True)
    assert site.sql("SELECT count(*) AS n FROM approval_links WHERE used_at IS NOT NULL")[0]["n"] == 1
    guest.client.close()


def test_used_expired_and_unknown_links_decide_nothing(site, command) -> None:
    approval = ask(site)
    client = site.as_(None)
    output = command("approvals", "link", str(approval), "bob", "-o", "json").output
    token = json.loads(output)["url"].rpartition("/")[2]
    assert client.post("/v1/approval-links/show", json={"token": token}).json()["may_decide"] is True
    site.sql("UPDATE approval_links SET expires_at = now() WHERE approval_id = $1", approval)
    body = {"token": token, "decision": {"approve": False}}
    assert client.post("/v1/approval-links/decide", json=body).status_code == 409
    assert client.post("/v1/approval-links/decide", json=body | {"token": "x" * 43}).status_code == 404
    assert client.get("/approve/short").status_code == 404
    assert outcome(site, approval) == ("TIME", None)
    shown = client.post("/v1/approval-links/show", json={"token": token}).json()
    assert (shown["shown"]["text"], shown["shown"]["rows"], shown["form"]) == ("The link has expired.", [], None)


def test_link_and_decision_of_concurrent_holders_count_once(site) -> None:
    approval = ask(site)
    writer = site.as_("operator-writer")
    links = [writer.post(f"/v1/approvals/{approval}/links", json={"recipient": name}).json() for name in ("ada", "bob")]

    def decide(number: int) -> int:
        body = {"token": links[number % 2]["token"], "decision": {"approve": False, "reason": str(number)}}
        return site.as_(None).post("/v1/approval-links/decide", json=body).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(decide, range(8))) == [200] + [409] * 7
    audited = "SELECT count(*) AS n FROM audit_log WHERE action = 'approval.reject' AND target = $1"
    assert site.sql(audited, str(approval))[0]["n"] == 1
