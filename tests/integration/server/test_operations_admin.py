"""Each operation on settings of an organisation leaves the same rows and the same audit entry through every channel."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aaiclick import operations
from aaiclick.store.engine.job_functions import JobFunctionFields, replace_job_functions
from aaiclick.store.enums import DEFAULT_ORG_ID
from tests.integration.server.test_approvals import insert_approval

VALUE = "canary-of-the-channels"
GENERATED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{15,}|\d{4}-\d\d-\d\dT[\d:.]+\+00:00")
"""UUIDs, Snowflake ids and times."""

ROWS = {
    "org": "SELECT id, name, weight, max_running, rate_per_second, rate_burst, paused_at IS NOT NULL AS paused"
    " FROM orgs WHERE slug = $1",
    "user": "SELECT id, org_id, email, role::text, disabled_at IS NOT NULL AS disabled FROM users"
    " WHERE external_id = $1",
    "role": "SELECT r.id, r.org_id, r.name, count(m.user_id) AS members FROM org_roles r"
    " LEFT JOIN org_role_memberships m ON m.role_id = r.id WHERE r.slug = $1 GROUP BY r.id",
    "key": "SELECT prefix AS id, org_id, scopes, user_id, expires_at, revoked_at IS NOT NULL AS revoked"
    " FROM api_keys WHERE name = $1",
    "secret": "SELECT name AS id, org_id, host FROM org_secrets WHERE name = $1",
    "channel": "SELECT name AS id, org_id, channel_type, config::text, roles, digest_seconds, quiet_from, quiet_until,"
    " timezone FROM notification_channels WHERE name = $1",
    "rule": "SELECT name AS id, org_id, rules, min_severity, dag_name, tag, escalate_after_seconds,"
    " array_replace(channels, $1, 'NAME') AS channels FROM notification_rules WHERE name = $1",
    "schedule": "SELECT s.name AS id, s.org_id, s.entrypoint, s.job_name, s.kwargs::text, cron, every_seconds,"
    " timezone, missed, overlap, s.paused_at IS NOT NULL AS paused, count(j.id) AS runs FROM schedules s"
    " LEFT JOIN jobs j ON j.schedule_id = s.id WHERE s.name = $1 GROUP BY s.id",
    "events": "SELECT name AS id, org_id, key, payload::text, expires_at - created_at AS kept FROM workflow_events"
    " WHERE name = $1",
    "approval": "SELECT a.id, a.org_id, l.recipient, l.used_at, round(extract(epoch FROM l.expires_at - now()) / 3600)"
    " AS hours FROM approvals a LEFT JOIN approval_links l ON l.approval_id = a.id WHERE a.title = $1",
    "job": "SELECT id, org_id, status::text, total_tasks, trigger ->> 'kind' AS kind,"
    " trigger ->> 'arguments' AS arguments FROM jobs WHERE name = $1",
}
Request = tuple[str, str, dict[str, Any] | None]
ORG: Request = ("POST", "/v1/orgs", {"slug": "{name}", "name": "Acme", "rate_per_second": 2})
USER: Request = ("POST", "/v1/users", {"external_id": "{name}", "role": "reader", "email": "a@example.org"})
ROLE: Request = ("POST", "/v1/roles", {"slug": "{name}", "name": "Analyst"})
KEY: Request = ("POST", "/v1/keys", {"name": "{name}", "scopes": ["reader"]})
SECRET: Request = ("PUT", "/v1/secrets/{name}", {"value": VALUE})
HOOK = "https://hooks.example.com/x"
CHANNEL: Request = ("PUT", "/v1/notifications/channels/{name}", {"type": "webhook", "config": {"url": HOOK}})
RULE: Request = ("PUT", "/v1/notifications/rules/{name}", {"channels": ["{name}"], "min_severity": "error"})
SCHEDULE: Request = ("POST", "/v1/schedules", {"name": "{name}", "entrypoint": "m.f", "cron": "0 3 * * *"})
OTHER_SECRET: Request = ("PUT", "/v1/orgs/ours/secrets/{name}", {"value": VALUE})


@dataclass(frozen=True)
class Action:
    """One change through each channel, after requests that create what it changes."""

    command: str
    request: Request
    form: tuple[str, dict[str, str]] | None = None
    before: list[Request | Callable[[Any, str], None]] = field(default_factory=list)
    of_other_org: bool = False


def insert_named_approval(site, name: str) -> None:
    site.sql("UPDATE approvals SET title = $2 WHERE id = $1 RETURNING id", insert_approval(site), name)


def register_function(site, name: str) -> None:
    function = JobFunctionFields(f"m.{name}", name, name, "", json.dumps({"properties": {"rows": {"type": "integer"}}}))
    site.run(lambda connection: replace_job_functions(connection, DEFAULT_ORG_ID, [name], [function]))


LIMITS = {"weight": "3", "max_running": "2", "rate_per_second": "", "rate_burst": ""}
ACTIONS = {
    "org.create": Action(
        "org create {name} --name Acme",
        ("POST", "/v1/orgs", {"slug": "{name}", "name": "Acme"}),
        ("/admin/orgs", {"slug": "{name}", "name": "Acme"}),
    ),
    "org.change": Action(
        "org set {name} --weight 3 --max-running 2",
        ("PUT", "/v1/orgs/{name}", {"weight": 3, "max_running": 2}),
        ("/admin/orgs/limits", {"id": "{id}", **LIMITS}),
        [ORG],
    ),
    "org.pause": Action(
        "org pause {name}", ("POST", "/v1/orgs/{id}/pause", None), ("/admin/orgs/pause", {"id": "{id}"}), [ORG]
    ),
    "org.resume": Action(
        "org resume {name}",
        ("POST", "/v1/orgs/{name}/resume", None),
        ("/admin/orgs/resume", {"id": "{id}"}),
        [ORG, ("POST", "/v1/orgs/{name}/pause", None)],
    ),
    "user.create": Action(
        "user create {name} --role writer --email a@example.org",
        ("POST", "/v1/users", {"external_id": "{name}", "role": "writer", "email": "a@example.org"}),
        ("/admin/users", {"external_id": "{name}", "role": "writer", "email": "a@example.org"}),
    ),
    "user.change": Action(
        "user set {name} --role admin --disabled",
        ("PATCH", "/v1/users/{name}", {"role": "admin", "disabled": True}),
        ("/admin/users/change", {"id": "{id}", "role": "admin", "disabled": "yes"}),
        [USER],
    ),
    "user.delete": Action("user rm {name}", ("DELETE", "/v1/users/{id}", None), None, [USER]),
    "role.create": Action("role create {name} --name Analyst", ROLE),
    "role.delete": Action("role rm {name}", ("DELETE", "/v1/roles/{id}", None), None, [ROLE]),
    "role.add": Action(
        "role grant {name} {name}", ("PUT", "/v1/roles/{name}/members/{name}", None), None, [USER, ROLE]
    ),
    "role.remove": Action(
        "role revoke {name} {name}",
        ("DELETE", "/v1/roles/{name}/members/{name}", None),
        None,
        [USER, ROLE, ("PUT", "/v1/roles/{name}/members/{name}", None)],
    ),
    "key.create": Action(
        "key create {name} --scope writer --scope reader",
        ("POST", "/v1/keys", {"name": "{name}", "scopes": ["reader", "writer"]}),
        ("/admin/keys", {"name": "{name}", "scope": ["reader", "writer"], "days": ""}),
    ),
    "key.create of another org": Action(
        "key create {name} --scope admin --org ours",
        ("POST", "/v1/orgs/ours/keys", {"name": "{name}", "scopes": ["admin"]}),
        of_other_org=True,
    ),
    "key.revoke": Action(
        "key revoke aai_{id}", ("DELETE", "/v1/keys/{id}", None), ("/admin/keys/revoke", {"id": "{id}"}), [KEY]
    ),
    "secret.set": Action(
        "secrets set {name} --host api.example.com",
        ("PUT", "/v1/secrets/{name}", {"value": VALUE, "host": "api.example.com"}),
        ("/admin/secrets", {"name": "{name}", "value": VALUE, "host": "api.example.com"}),
    ),
    "secret.remove": Action(
        "secrets rm {name}",
        ("DELETE", "/v1/secrets/{name}", None),
        ("/admin/secrets/remove", {"name": "{name}"}),
        [SECRET],
    ),
    "secret.set of another org": Action("secrets set {name} --org ours", OTHER_SECRET, of_other_org=True),
    "secret.remove of another org": Action(
        "secrets rm {name} --org ours",
        ("DELETE", "/v1/orgs/ours/secrets/{name}", None),
        None,
        [OTHER_SECRET],
        of_other_org=True,
    ),
    "channel.set": Action(f"notify add-channel {{name}} webhook --set url={HOOK}", CHANNEL),
    "channel.delete": Action(
        "notify rm-channel {name}", ("DELETE", "/v1/notifications/channels/{name}", None), None, [CHANNEL]
    ),
    "rule.set": Action("notify add-rule {name} --channel {name} --severity error", RULE, None, [CHANNEL]),
    "rule.delete": Action(
        "notify rm-rule {name}", ("DELETE", "/v1/notifications/rules/{name}", None), None, [CHANNEL, RULE]
    ),
    "schedule.create": Action(
        "schedules add {name} m.f --every 5m",
        ("POST", "/v1/schedules", {"name": "{name}", "entrypoint": "m.f", "every": "5m"}),
    ),
    "schedule.delete": Action(
        "schedules rm {name}", ("DELETE", "/v1/schedules/{name}", None), ("/schedules/{name}/delete", {}), [SCHEDULE]
    ),
    "schedule.pause": Action(
        "schedules pause {name}",
        ("POST", "/v1/schedules/{name}/pause", None),
        ("/schedules/{name}/pause", {}),
        [SCHEDULE],
    ),
    "schedule.resume": Action(
        "schedules resume {name}",
        ("POST", "/v1/schedules/{name}/resume", None),
        ("/schedules/{name}/resume", {}),
        [SCHEDULE, ("POST", "/v1/schedules/{name}/pause", None)],
    ),
    "schedule.fire": Action(
        "schedules fire {name}", ("POST", "/v1/schedules/{name}/fire", {}), ("/schedules/{name}/fire", {}), [SCHEDULE]
    ),
    "schedule.backfill": Action(
        "schedules backfill {name} --from 2026-01-01 --to 2026-01-02",
        ("POST", "/v1/schedules/{name}/backfill", {"first": "2026-01-01", "last": "2026-01-02"}),
        ("/schedules/{name}/backfill", {"from": "2026-01-01", "to": "2026-01-02"}),
        [SCHEDULE],
    ),
    "events.send": Action(
        "events send {name} --key 42 --payload {payload} --keep 60",
        ("POST", "/v1/events", {"name": "{name}", "key": "42", "payload": {"euros": 7}, "keep_seconds": 60}),
    ),
    "approval.link": Action(
        "approvals link {id} Anna",
        ("POST", "/v1/approvals/{id}/links", {"recipient": "Anna"}),
        ("/approvals/{id}/links", {"recipient": "Anna"}),
        [insert_named_approval],
    ),
    "job.create by a function": Action(
        "functions run m.{name} --arg rows=7",
        ("POST", "/v1/functions/m.{name}/run", {"arguments": {"rows": 7}}),
        ("/functions/m.{name}/run", {"arg.rows": "7"}),
        [register_function],
    ),
}
COMPARED_ELSEWHERE = {
    "test_operations": [
        "job.cancel", "job.create", "job.pause", "job.release", "job.resume", "job.retry", "task.cancel", "task.clear",
        "queue.limit", "queue.pause", "queue.resume", "type.pause", "type.resume", "type.retry", "worker.drain",
        "dead_letters.discard", "dead_letters.redrive", "events.retry",
        "incident.acknowledge", "incident.close", "incident.snooze",
    ],
    "test_cli_pipelines": [
        "dag.backfill", "dag.deploy", "dag.pause", "dag.resume", "dag.rollback", "dag.run", "dataset.readers",
        "dataset.register", "dataset.rematerialize",
    ],
    "test_approvals": ["approval.approve", "approval.reject"],
    "test_delete_dag": ["dag.delete"],
    "test_mcp": ["mcp.call"],
    "test_operations_admin": ["channel.test"],
    "test_schedules": ["schedule.sync"],
}  # fmt: skip
"""File → audit actions with tests of their channels in it."""


def fill(template: Any, names: dict[str, str]) -> Any:
    """Replace {name} and {id} in all texts of a value."""
    if isinstance(template, str):
        return template.format(**names) if "{" in template else template
    if isinstance(template, dict):
        return {key: fill(value, names) for key, value in template.items()}
    if isinstance(template, list):
        return [fill(value, names) for value in template]
    return template


def send(site, request: Request, names: dict[str, str]) -> None:
    method, path, body = request
    response = site.as_("operator-admin").request(method, fill(path, names), json=fill(body, names))
    assert response.is_success, response.text


def read_rows(site, noun: str, name: str) -> list[dict[str, Any]]:
    return [dict(row) for row in site.sql(ROWS[noun], name)]


@pytest.mark.parametrize("case", ACTIONS)
def test_admin_channels_leave_the_same_rows_and_audit_entry(site, command, browser, case: str) -> None:
    action = ACTIONS[case]
    noun = case.split(".", maxsplit=1)[0]
    states = {}
    for channel in ("api", "local", "remote", *(["ui"] if action.form else [])):
        joint = "_" if noun == "job" else "-"  # the name of a function
        names = {"name": re.sub("[^a-z]", joint, f"{case} {channel}"), "payload": '{"euros":7}'}
        for step in action.before:
            step(site, names["name"]) if callable(step) else send(site, step, names)
        names["id"] = "".join(str(row["id"]) for row in read_rows(site, noun, names["name"]))
        [last] = site.sql("SELECT max(id) AS id FROM audit_log")
        perform(site, command, browser, channel, action, names)
        rows = read_rows(site, noun, names["name"])
        item_ids = {names["id"], *(str(row.pop("id")) for row in rows)}
        entries = site.sql("SELECT * FROM audit_log WHERE id > $1", last["id"])
        assert VALUE not in str([dict(entry) for entry in entries])
        assert {entry["target"] for entry in entries} <= item_ids
        details = [GENERATED.sub("ID", entry["detail"]).replace(names["name"], "NAME") for entry in entries]
        assert [entry["actor"].startswith("local:") for entry in entries] == [channel == "local"]
        states[channel] = (
            rows,
            [(e["action"], json.loads(d), e["org_id"]) for e, d in zip(entries, details, strict=True)],
        )
    [(audited, _, org_id)] = states["api"][1]
    assert (audited, org_id) == (case.split()[0], site.org if action.of_other_org else DEFAULT_ORG_ID)
    for channel, state in states.items():
        assert state == states["api"], channel


def perform(site, command, browser, channel: str, action: Action, names: dict[str, str]) -> None:
    if channel == "api":
        send(site, action.request, names)
    elif channel == "ui":
        path, fields = action.form or ("", {})
        response = browser.client.post(fill(path, names), data={"csrf": browser.csrf, **fill(fields, names)})
        assert response.status_code in (200, 303), response.text
        assert VALUE not in response.text
    else:
        line = fill(action.command, names).split()
        result = command(*line, role=None if channel == "local" else "operator-admin", input_text=f"{VALUE}\n")
        assert result.exception is None, result.exception
        assert VALUE not in result.output


def test_test_of_a_channel_leaves_the_same_audit_entry(site, command, browser) -> None:
    """Also if the address does not accept the message."""
    channel = {"type": "webhook", "config": {"url": "https://hooks.invalid/x"}}
    site.as_("operator-admin").put("/v1/notifications/channels/deaf", json=channel).raise_for_status()
    response = site.as_("operator-admin").post("/v1/notifications/channels/deaf/test")
    assert "hooks.invalid" in response.json()["detail"]
    form = {"csrf": browser.csrf}
    assert browser.client.post("/incidents/channels/deaf/test", data=form).status_code == 303
    for role in (None, "operator-admin"):
        assert "hooks.invalid" in str(command("notify", "test", "deaf", role=role).exception)
    entries = site.sql("SELECT detail::text, org_id FROM audit_log WHERE action = 'channel.test' AND target = 'deaf'")
    assert [tuple(entry) for entry in entries] == [("{}", DEFAULT_ORG_ID)] * 4


@pytest.mark.parametrize("role", ["admin", None])
def test_names_that_look_like_an_id_do_not_hide_the_item(site, command, role: str | None) -> None:
    """An id means the item with that id, also if another item has it as its name."""
    org = ["--org", "ours"]
    first = site.as_("admin").post("/v1/users", json={"external_id": f"first|{role}", "role": "reader"}).json()
    site.as_("admin").post("/v1/users", json={"external_id": first["id"], "role": "reader"}).raise_for_status()
    changed = command("user", "set", first["id"].upper(), "--role", "writer", *org, "-o", "json", role=role)
    assert json.loads(changed.stdout)["external_id"] == first["external_id"]
    for subject in (first["external_id"], first["id"]):
        assert command("user", "rm", subject, *org, role=role).exception is None


def test_other_organisations_names_are_not_found(site) -> None:
    admin, other = site.as_("admin"), site.as_("other-admin")
    for path, body in (
        ("users", {"external_id": "sub/hidden", "role": "reader"}),
        ("roles", {"slug": "hidden", "name": "H"}),
    ):
        admin.post(f"/v1/{path}", json=body).raise_for_status()
    assert admin.get("/v1/users/sub%2Fhidden").status_code == 200
    prefix = admin.post("/v1/keys", json={"name": "hidden", "scopes": ["reader"]}).json()["prefix"]
    for method, path in (
        ("GET", "users/sub%2Fhidden"), ("PATCH", "users/sub%2Fhidden"), ("DELETE", "users/sub%2Fhidden"),
        ("DELETE", "roles/hidden"), ("GET", "roles/hidden/members"), ("PUT", "roles/hidden/members/sub%2Fhidden"),
        ("GET", f"keys/{prefix}"), ("DELETE", f"keys/{prefix}"), ("GET", "orgs/ours"), ("GET", "orgs/nowhere"),
    ):  # fmt: skip
        response = other.request(method, f"/v1/{path}", json={"role": "admin"} if method == "PATCH" else None)
        assert response.status_code == 404, (path, response.text)


def test_every_audit_action_is_compared() -> None:
    """New operations need a case here or in another file of tests."""
    package = Path(operations.__path__[0])
    texts = [
        path.read_text(encoding="utf-8") for path in [*package.glob("*.py"), *package.parent.glob("server/**/*.py")]
    ]
    audited = {name for text in texts for name in re.findall(r'write_audit\([^"]*"([a-z_]+\.[a-z_]+)"', text)}
    audited |= {"approval.approve", "approval.reject"}  # in one call
    assert len(audited) > 50
    elsewhere = {name for names in COMPARED_ELSEWHERE.values() for name in names}
    assert {case.split()[0] for case in ACTIONS} | elsewhere == audited
    files = {path.stem for path in Path(__file__).parents[1].rglob("test_*.py")}
    assert COMPARED_ELSEWHERE.keys() <= files
