"""Events for waiting tasks, sent by API and command line."""

from __future__ import annotations

import pytest

from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.enums import DEFAULT_ORG_ID

WAITING = (
    "INSERT INTO tasks (id, org_id, type, readiness, available_at, kwargs)"
    " VALUES ($1, $2, 'x', 'TIME', now() + interval '1 h', '{\"aaiclick_wait\": {}}')"
)
WAIT = "INSERT INTO waits (task_id, org_id, attempt, wait_type, name, key) VALUES ($1, $2, 0, 'event', 'paid', '42')"


@pytest.mark.parametrize("channel", ["api", "local", "remote"])
def test_event_ends_the_wait_through_every_channel(site, command, channel) -> None:
    task = get_snowflake_id()
    for statement in (WAITING, WAIT):
        site.sql(statement, task, DEFAULT_ORG_ID)
    if channel == "api":
        event = {"name": "paid", "key": "42", "payload": {"euros": 7}, "keep_seconds": 0}
        response = site.as_("operator-admin").post("/v1/events", json=event)
        assert response.json()["ended_waits"] == 1, response.text
    else:
        role = None if channel == "local" else "operator-admin"
        arguments = ("events", "send", "paid", "--key", "42", "--payload", '{"euros": 7}', "--keep", "0")
        result = command(*arguments, role=role)
        assert result.output == "Event sent; 1 wait ended.\n", (result.output, result.exception)
    [row] = site.sql("SELECT readiness::text, kwargs::text FROM tasks WHERE id = $1", task)
    assert row["readiness"] == "READY"
    assert '"euros": 7' in row["kwargs"]
    [entry] = site.sql("SELECT action, target, detail::text FROM audit_log ORDER BY id DESC LIMIT 1")
    assert (entry["action"], entry["target"]) == ("events.send", "paid")
    assert '"ended_waits": 1' in entry["detail"]


def test_event_of_another_org_ends_no_wait(site) -> None:
    task = get_snowflake_id()
    for statement in (WAITING, WAIT):
        site.sql(statement, task, DEFAULT_ORG_ID)
    event = {"name": "paid", "key": "42"}
    assert site.as_("admin").post("/v1/events", json=event).json()["ended_waits"] == 0


@pytest.mark.parametrize(
    ("event", "status"),
    [
        ({"name": ""}, 422),
        ({"name": "x", "payload": {"object_type": "view"}}, 422),
        ({"name": "x", "keep_seconds": -1}, 422),
        ({"name": "x", "payload": {"aaiclick_wait": {}}}, 422),
    ],
)
def test_invalid_event_is_refused(site, event, status) -> None:
    assert site.as_("operator-admin").post("/v1/events", json=event).status_code == status


def test_payload_that_is_no_object_is_refused(command) -> None:
    result = command("events", "send", "paid", "--payload", "[1]")
    assert "--payload is not a JSON object" in str(result.exception)
