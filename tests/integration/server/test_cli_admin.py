"""Commands about organisations, users, keys and limits: the same changes and audit entries locally and remotely."""

from __future__ import annotations

import asyncio
import json

import pytest


@pytest.mark.parametrize("role", ["operator-admin", None])
def test_limits_of_queues_and_organisations_are_set_and_removed(command, site, role: str | None) -> None:
    """An omitted limit is removed; the name of an organisation stays."""

    def run(*line: str):
        result = command(*line, role=role)
        assert result.exception is None, (line, result.exception)
        return json.loads(result.stdout) if "json" in line else result.stderr

    slug = f"limited-{role or 'local'}"
    run("org", "create", slug, "--name", "Limited", "--max-running", "9", "--rate", "5", "--burst", "50")
    changed = run("org", "set", slug, "--weight", "4", "--rate", "2", "-o", "json")
    limits = ("name", "weight", "max_running", "rate_per_second", "rate_burst")
    assert [changed[name] for name in limits] == ["Limited", 4, None, 2, 2]
    assert run("org", "set", slug, "--name", "Free", "-o", "json")["name"] == "Free"
    assert "max_running 3" in run("queues", "set", "narrow", "--weight", "2", "--max-running", "3", "--rate", "0.5")
    assert _narrow(site) == (2, 3, 0.5, 1)
    run("queues", "set", "narrow")
    assert _narrow(site) == (1, None, None, None)
    assert command("org", "set", "nowhere", role=role).exception.exit_code == 3
    assert "--burst requires --rate" in str(command("queues", "set", "narrow", "--burst", "2", role=role).exception)
    done = {row["action"] for row in site.sql("SELECT action FROM audit_log WHERE actor LIKE $1", "local:%")}
    assert role is not None or {"org.change", "queue.limit"} <= done
    assert command("queues", "set", "narrow", role="operator-reader").exception.exit_code == 4


def _narrow(site) -> tuple:
    [row] = site.sql("SELECT weight, max_running, rate_per_second, rate_burst FROM queues WHERE name = 'narrow'")
    return tuple(row)


@pytest.mark.parametrize("role", ["admin", None])
def test_queue_and_type_commands_accept_an_organisation(command, site, role: str | None) -> None:
    org, name = site.sql("SELECT slug FROM orgs WHERE id = $1", site.org)[0]["slug"], f"of-{role or 'local'}"

    def run(*line: str, by: str | None = role):
        result = command(*line, "--org", org, role=by)
        assert result.exception is None, (line, result.exception)
        return json.loads(result.stdout) if "json" in line else None

    def paused(group: str) -> list[bool]:
        listed = run(f"{group}s", "ls", "-o", "json")
        assert {item["org"] for item in listed} <= {org}
        return [item["paused_at"] is not None for item in listed if item["name"] == name]

    before = len(site.sql("SELECT 1 FROM audit_log"))
    run("types", "retry", name, "--base-seconds", "7")
    run("queues", "set", name, "--weight", "2")
    for group in ("queue", "type"):
        run(f"{group}s", "pause", name)
        assert paused(group) == [True]
        run(f"{group}s", "resume", name)
        assert paused(group) == [False]
    entries = site.sql("SELECT org_id, action, target FROM audit_log ORDER BY id OFFSET $1", before)
    assert {(row["org_id"], row["target"]) for row in entries} == {(site.org, name)}
    assert [row["action"] for row in entries] == [
        "type.retry", "queue.limit", "queue.pause", "queue.resume", "type.pause", "type.resume",
    ]  # fmt: skip
    for line in ("queues ls", "queues pause x", "types ls", "types pause x"):
        refused = command(*line.split(), "--org", "nowhere", role=role).exception
        assert refused.exit_code == 3, line
    assert "not a key of" in str(command("types", "ls", "--org", org).exception)
    assert (
        command("queues", "ls", "--org", "default", role="admin").exception.exit_code == 3
    )  # it may not know whether it exists
    all_orgs = {item["org"] for item in json.loads(command("types", "ls", "-o", "json", role=None).stdout)}
    assert org in all_orgs


def test_local_commands_write_the_same_audit_entries_as_remote_ones(command, site) -> None:
    """The same actions on the same targets with the same details, by another actor."""

    def audit_entries(role: str | None) -> list[tuple]:
        before = len(site.sql("SELECT 1 FROM audit_log"))
        writer = site.as_("operator-writer")
        job = writer.post("/v1/jobs", json={"name": "j", "entrypoint": "m.f"}).json()["id"]
        items = [{"type": "recorded"} for _ in range(3)]
        task, redriven, discarded = writer.post("/v1/tasks", json={"items": items}).json()["ids"]
        for dead in (redriven, discarded):
            site.sql(
                "UPDATE tasks SET status = 'DEAD_LETTER', readiness = NULL, completed_at = now(), attempt = 4,"
                " failures = 4, error = 'x', error_fingerprint = 'E:2' WHERE id = $1 RETURNING id",
                int(dead),
            )
        slug = f"recorded-{role or 'local'}"
        assert command("org", "create", slug, role=role).exception is None
        user = json.loads(command("user", "create", slug, "--role", "writer", "-o", "json", role=role).stdout)["id"]
        lines = [f"org pause {slug}", f"org resume {slug}", f"user rm {user}", f"tasks cancel {task}"]
        lines += [f"tasks clear {task}", f"dlq redrive {redriven}", "dlq discard --fingerprint E:2"]
        for line in (*lines, *(f"jobs {action} {job}" for action in ("pause", "resume", "cancel", "retry", "release"))):
            assert command(*line.split(), role=role).exception is None, line
        [org] = site.sql("SELECT id::text FROM orgs WHERE slug = $1", slug)
        placeholders = {job: "JOB", user: "USER", org["id"]: "ORG", task: "TASK", "dead letters": "DEAD LETTERS"}
        entries = site.sql(
            "SELECT org_id, actor, action, target, detail::text FROM audit_log ORDER BY id OFFSET $1", before
        )
        changes = [row for row in entries if row["action"] != "job.create"]
        site.sql("DELETE FROM tasks WHERE type = 'recorded' RETURNING id")
        assert {row["actor"].startswith("local:") for row in changes} == {role is None}
        return [
            (row["org_id"], row["action"], placeholders[row["target"]], row["detail"].replace(slug, "SLUG"))
            for row in changes
        ]

    local, remote = audit_entries(None), audit_entries("operator-admin")
    assert local == remote
    assert len(local) == 14
    for action in ("cancel", "release", "pause", "resume", "retry"):
        assert command("jobs", action, "404", role=None).exception.exit_code == 3, action


def test_remote_user_and_key_commands(command, site) -> None:
    def run_json(*line: str, role: str | None = "operator-admin"):
        result = command(*line, "-o", "json", role=role)
        assert result.exception is None, (line, result.exception)
        return json.loads(result.stdout)

    key = run_json("key", "create", "k", "--scope", "reader", "--days", "1")
    assert key["key"].startswith("aai_")
    assert "API key 'k' revoked." in command("key", "revoke", key["id"]).stderr
    person = run_json("user", "create", "12345", "--role", "writer")
    org = run_json("org", "create", "remote", "--weight", "3")
    assert command("org", "pause", "remote").exception is None
    assert run_json("key", "create", "first", "--scope", "admin", "--org", "remote")["scopes"] == ["admin"]
    assert command("types", "retry", "mail", "--base-seconds", "7").exception is None
    assert command("types", "pause", "mail").exception is None
    for line in (["key", "ls"], ["user", "ls"], ["org", "ls"], ["types", "ls", "--org", "default"]):
        listed = run_json(*line)
        local = run_json(*line, role=None)
        for item in (*listed, *local):
            item.pop("last_used_at", None)
        assert listed == local
        assert listed
    assert org["weight"] == 3
    assert command("org", "resume", "remote").exception is None
    assert command("types", "resume", "mail").exception is None
    assert command("user", "rm", person["id"]).exception is None
    assert "not a key of organisation" in str(command("user", "ls", "--org", "remote").exception)


@pytest.mark.parametrize("role", ["operator-admin", None])
def test_roles_are_created_granted_revoked_and_deleted(command, site, role: str | None) -> None:
    def run(*line: str):
        result = command(*line, role=role)
        assert result.exception is None, (line, result.exception)
        return json.loads(result.stdout) if "json" in line else result.stderr

    def refused(*line: str, by: str | None = role) -> int:
        return command("role", *line, role=by).exception.exit_code

    before = len(site.sql("SELECT 1 FROM audit_log"))
    slug, subject = f"analyst-{role or 'local'}", f"sub|{role}"
    user = run("user", "create", subject, "-o", "json")["id"]
    created = run("role", "create", slug, "--name", "Analyst", "-o", "json")
    assert (created["slug"], created["name"]) == (slug, "Analyst")
    assert created in run("role", "ls", "-o", "json")
    assert f"Role '{slug}' granted to user" in run("role", "grant", slug, subject)
    [member] = run("role", "members", slug, "-o", "json")
    assert (member["user_id"], member["external_id"]) == (user, subject)
    run("role", "revoke", created["id"], user)
    assert run("role", "members", slug, "-o", "json") == []
    for line in (["revoke", slug, user], ["grant", "nowhere", user], ["grant", slug, "nobody"]):
        assert refused(*line) == 3, line
    assert refused("create", slug) == 1
    assert refused("create", "No Slug") == 2
    assert refused("create", "other", by="operator-writer") == 4
    run("role", "rm", slug)
    assert refused("rm", slug) == 3
    run("user", "rm", user)
    entries = [row["action"] for row in site.sql("SELECT action FROM audit_log ORDER BY id OFFSET $1", before)]
    assert [action for action in entries if "role" in action] == [
        "role.create",
        "role.add",
        "role.remove",
        "role.delete",
    ]


@pytest.mark.parametrize("role", ["operator-admin", None])
def test_users_and_keys_are_selected_by_name_or_prefix(command, site, role: str | None) -> None:
    def run(*line: str):
        result = command(*line, role=role)
        assert result.exception is None, (line, result.exception)
        return json.loads(result.stdout) if "json" in line else result.stderr

    def state(*line: str) -> tuple:
        after = run("user", "set", subject, *line, "-o", "json")
        return after["role"], after["email"], after["disabled_at"] is not None

    before = len(site.sql("SELECT 1 FROM audit_log"))
    subject = f"oidc|{role}"
    user = run("user", "create", subject, "--email", "a@example.org", "-o", "json")["id"]
    assert state("--role", "writer") == ("writer", "a@example.org", False)
    assert state("--disabled") == ("writer", "a@example.org", True)
    assert state("--email", "b@example.org") == ("writer", "b@example.org", True)
    assert state("--enabled") == ("writer", "b@example.org", False)
    assert state("--email", "") == ("writer", None, False)
    key = run("key", "create", "named", "--scope", "reader", "-o", "json")
    run("key", "revoke", f"aai_{key['prefix']}")
    [listed] = [item for item in run("key", "ls", "-o", "json") if item["id"] == key["id"]]
    assert listed["revoked_at"]
    run("user", "rm", subject)
    for line in (["user", "set", user], ["user", "rm", subject], ["key", "revoke", "aai_nothing"]):
        assert command(*line, role=role).exception.exit_code == 3, line
    entries = site.sql("SELECT action, target FROM audit_log ORDER BY id OFFSET $1", before)
    assert [row["action"] for row in entries if row["target"] == user] == [
        "user.create", *["user.change"] * 5, "user.delete",
    ]  # fmt: skip


def test_remote_command_can_name_the_default_organisation(command, site) -> None:
    """A key of another organisation is not a key of that one."""
    person = command("user", "create", "remote", "-o", "json", role="admin")
    assert person.exception is None
    for line in ("user set afar --role admin", "user rm afar", "key create k --scope admin", "role ls"):
        refused = command(*line.split(), "--org", "default", role="admin").exception
        assert refused.exit_code in (3, 5), line
        assert "org" in refused.what
    assert command("user", "rm", "remote", role="admin").exception is None


@pytest.mark.parametrize("role", ["operator-admin", None])
def test_concurrent_changes_of_a_user_are_both_applied(command, site, role: str | None) -> None:
    subject = f"both|{role}"
    assert command("user", "create", subject, role=role).exception is None

    async def change(connection) -> None:
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM users WHERE external_id = $1 FOR UPDATE", subject)
            line = ("user", "set", subject, "--role", "admin")
            waiting = asyncio.create_task(asyncio.to_thread(command, *line, role=role))
            asks = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
            while not await connection.fetchval(asks):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await connection.execute("UPDATE users SET disabled_at = now() WHERE external_id = $1", subject)
        assert (await waiting).exception is None

    site.run(change)
    [row] = site.sql("SELECT role::text, disabled_at FROM users WHERE external_id = $1", subject)
    assert (row["role"], row["disabled_at"] is not None) == ("admin", True)
