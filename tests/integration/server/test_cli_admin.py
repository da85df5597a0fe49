"""Commands about organisations, people, keys and limits: the same deeds and records, near and from afar."""

from __future__ import annotations

import asyncio
import json

import pytest


@pytest.mark.parametrize("role", ["operator-admin", None])
def test_queues_and_organisations_are_given_limits_and_lose_them(command, site, role: str | None) -> None:
    """What is left out is lifted; the name of an organisation stays."""

    def told(*line: str):
        result = command(*line, role=role)
        assert result.exception is None, (line, result.exception)
        return json.loads(result.stdout) if "json" in line else result.stderr

    slug = f"limited-{role or 'near'}"
    told("org", "create", slug, "--name", "Limited", "--max-running", "9", "--rate", "5", "--burst", "50")
    changed = told("org", "set", slug, "--weight", "4", "--rate", "2", "-o", "json")
    limits = ("name", "weight", "max_running", "rate_per_second", "rate_burst")
    assert [changed[each] for each in limits] == ["Limited", 4, None, 2, 2]
    assert told("org", "set", slug, "--name", "Free", "-o", "json")["name"] == "Free"
    assert "max_running 3" in told("queues", "set", "narrow", "--weight", "2", "--max-running", "3", "--rate", "0.5")
    assert _narrow(site) == (2, 3, 0.5, 1)
    told("queues", "set", "narrow")
    assert _narrow(site) == (1, None, None, None)
    assert command("org", "set", "nowhere", role=role).exception.exit_code == 3
    assert "--burst goes with --rate" in str(command("queues", "set", "narrow", "--burst", "2", role=role).exception)
    done = {row["action"] for row in site.sql("SELECT action FROM audit_log WHERE actor LIKE $1", "local:%")}
    assert role is not None or {"org.change", "queue.limit"} <= done
    assert command("queues", "set", "narrow", role="operator-reader").exception.exit_code == 4


def _narrow(site) -> tuple:
    [row] = site.sql("SELECT weight, max_running, rate_per_second, rate_burst FROM queues WHERE name = 'narrow'")
    return tuple(row)


@pytest.mark.parametrize("role", ["admin", None])
def test_queues_and_types_of_the_organisation_that_is_named(command, site, role: str | None) -> None:
    org, name = site.sql("SELECT slug FROM orgs WHERE id = $1", site.org)[0]["slug"], f"of-{role or 'near'}"

    def told(*line: str, by: str | None = role):
        result = command(*line, "--org", org, role=by)
        assert result.exception is None, (line, result.exception)
        return json.loads(result.stdout) if "json" in line else None

    def paused(kind: str) -> list[bool]:
        listed = told(f"{kind}s", "ls", "-o", "json")
        assert {each["org"] for each in listed} <= {org}
        return [each["paused_at"] is not None for each in listed if each["name"] == name]

    before = len(site.sql("SELECT 1 FROM audit_log"))
    told("types", "retry", name, "--base-seconds", "7")
    told("queues", "set", name, "--weight", "2")
    for kind in ("queue", "type"):
        told(f"{kind}s", "pause", name)
        assert paused(kind) == [True]
        told(f"{kind}s", "resume", name)
        assert paused(kind) == [False]
    deeds = site.sql("SELECT org_id, action, target FROM audit_log ORDER BY id OFFSET $1", before)
    assert {(row["org_id"], row["target"]) for row in deeds} == {(site.org, name)}
    assert [row["action"] for row in deeds] == [
        "type.retry", "queue.limit", "queue.pause", "queue.resume", "type.pause", "type.resume",
    ]  # fmt: skip
    for line in ("queues ls", "queues pause x", "types ls", "types pause x"):
        refused = command(*line.split(), "--org", "nowhere", role=role).exception
        assert refused.exit_code == 3, line
    assert "not a key of" in str(command("types", "ls", "--org", org).exception)
    assert command("queues", "ls", "--org", "default", role="admin").exception.exit_code == 3  # for all it may know
    everything = {each["org"] for each in json.loads(command("types", "ls", "-o", "json", role=None).stdout)}
    assert org in everything


def test_what_is_done_beside_the_databases_is_recorded_as_over_http(command, site) -> None:
    """The same deeds of the same targets, with the same details, by another actor."""

    def done(role: str | None) -> list[tuple]:
        before = len(site.sql("SELECT 1 FROM audit_log"))
        writer = site.as_("operator-writer")
        job = writer.post("/v1/jobs", json={"name": "j", "entrypoint": "m.f"}).json()["id"]
        items = [{"type": "recorded"} for _ in range(3)]
        task, again, given_up = writer.post("/v1/tasks", json={"items": items}).json()["ids"]
        for dead in (again, given_up):
            site.sql(
                "UPDATE tasks SET status = 'DEAD_LETTER', readiness = NULL, completed_at = now(), attempt = 4,"
                " failures = 4, error = 'x', error_fingerprint = 'E:2' WHERE id = $1 RETURNING id",
                int(dead),
            )
        slug = f"recorded-{role or 'near'}"
        assert command("org", "create", slug, role=role).exception is None
        user = json.loads(command("user", "create", slug, "--role", "writer", "-o", "json", role=role).stdout)["id"]
        lines = [f"org pause {slug}", f"org resume {slug}", f"user rm {user}", f"tasks cancel {task}"]
        lines += [f"tasks clear {task}", f"dlq redrive {again}", "dlq discard --fingerprint E:2"]
        for line in (*lines, *(f"jobs {deed} {job}" for deed in ("pause", "resume", "cancel", "retry", "release"))):
            assert command(*line.split(), role=role).exception is None, line
        [made] = site.sql("SELECT id::text FROM orgs WHERE slug = $1", slug)
        words = {job: "JOB", user: "USER", made["id"]: "ORG", task: "TASK", "dead letters": "DEAD LETTERS"}
        deeds = site.sql(
            "SELECT org_id, actor, action, target, detail::text FROM audit_log ORDER BY id OFFSET $1", before
        )
        ours = [row for row in deeds if row["action"] != "job.create"]
        site.sql("DELETE FROM tasks WHERE type = 'recorded' RETURNING id")
        assert {row["actor"].startswith("local:") for row in ours} == {role is None}
        return [
            (row["org_id"], row["action"], words[row["target"]], row["detail"].replace(slug, "SLUG")) for row in ours
        ]

    near, far = done(None), done("operator-admin")
    assert near == far
    assert len(near) == 14
    for deed in ("cancel", "release", "pause", "resume", "retry"):
        assert command("jobs", deed, "404", role=None).exception.exit_code == 3, deed


def test_people_and_keys_from_afar(command, site) -> None:
    def far(*line: str, role: str | None = "operator-admin"):
        result = command(*line, "-o", "json", role=role)
        assert result.exception is None, (line, result.exception)
        return json.loads(result.stdout)

    made = far("key", "create", "k", "--scope", "reader", "--days", "1")
    assert made["key"].startswith("aai_")
    assert "The key 'k' is revoked." in command("key", "revoke", made["id"]).stderr
    person = far("user", "create", "12345", "--role", "writer")
    org = far("org", "create", "afar", "--weight", "3")
    assert command("org", "pause", "afar").exception is None
    assert far("key", "create", "first", "--scope", "admin", "--org", "afar")["scopes"] == ["admin"]
    assert command("types", "retry", "mail", "--base-seconds", "7").exception is None
    assert command("types", "pause", "mail").exception is None
    for line in (["key", "ls"], ["user", "ls"], ["org", "ls"], ["types", "ls", "--org", "default"]):
        listed = far(*line)
        near = far(*line, role=None)
        for each in (*listed, *near):
            each.pop("last_used_at", None)
        assert listed == near
        assert listed
    assert org["weight"] == 3
    assert command("org", "resume", "afar").exception is None
    assert command("types", "resume", "mail").exception is None
    assert command("user", "rm", person["id"]).exception is None
    assert "not a key of the organisation" in str(command("user", "ls", "--org", "afar").exception)


@pytest.mark.parametrize("role", ["operator-admin", None])
def test_roles_are_made_given_taken_and_removed(command, site, role: str | None) -> None:
    def told(*line: str):
        result = command(*line, role=role)
        assert result.exception is None, (line, result.exception)
        return json.loads(result.stdout) if "json" in line else result.stderr

    def refused(*line: str, by: str | None = role) -> int:
        return command("role", *line, role=by).exception.exit_code

    before = len(site.sql("SELECT 1 FROM audit_log"))
    slug, subject = f"analyst-{role or 'near'}", f"sub|{role}"
    user = told("user", "create", subject, "-o", "json")["id"]
    made = told("role", "create", slug, "--name", "Analyst", "-o", "json")
    assert (made["slug"], made["name"]) == (slug, "Analyst")
    assert made in told("role", "ls", "-o", "json")
    assert f"has the role '{slug}'" in told("role", "give", slug, subject)
    [member] = told("role", "members", slug, "-o", "json")
    assert (member["user_id"], member["external_id"]) == (user, subject)
    told("role", "take", made["id"], user)
    assert told("role", "members", slug, "-o", "json") == []
    assert [refused(*line) for line in (["take", slug, user], ["give", "nowhere", user], ["give", slug, "nobody"])] == [
        3
    ] * 3
    assert refused("create", slug) == 1
    assert refused("create", "No Slug") == 2
    assert refused("create", "other", by="operator-writer") == 4
    told("role", "rm", slug)
    assert refused("rm", slug) == 3
    told("user", "rm", user)
    deeds = [row["action"] for row in site.sql("SELECT action FROM audit_log ORDER BY id OFFSET $1", before)]
    assert [deed for deed in deeds if "role" in deed] == ["role.create", "role.add", "role.remove", "role.delete"]


@pytest.mark.parametrize("role", ["operator-admin", None])
def test_users_and_keys_are_changed_by_what_people_call_them(command, site, role: str | None) -> None:
    def told(*line: str):
        result = command(*line, role=role)
        assert result.exception is None, (line, result.exception)
        return json.loads(result.stdout) if "json" in line else result.stderr

    def state(*line: str) -> tuple:
        after = told("user", "set", subject, *line, "-o", "json")
        return after["role"], after["email"], after["disabled_at"] is not None

    before = len(site.sql("SELECT 1 FROM audit_log"))
    subject = f"oidc|{role}"
    user = told("user", "create", subject, "--email", "a@example.org", "-o", "json")["id"]
    assert state("--role", "writer") == ("writer", "a@example.org", False)
    assert state("--disabled") == ("writer", "a@example.org", True)
    assert state("--email", "b@example.org") == ("writer", "b@example.org", True)
    assert state("--enabled") == ("writer", "b@example.org", False)
    assert state("--email", "") == ("writer", None, False)
    key = told("key", "create", "named", "--scope", "reader", "-o", "json")
    told("key", "revoke", f"aai_{key['prefix']}")
    [listed] = [each for each in told("key", "ls", "-o", "json") if each["id"] == key["id"]]
    assert listed["revoked_at"]
    told("user", "rm", subject)
    for line in (["user", "set", user], ["user", "rm", subject], ["key", "revoke", "aai_nothing"]):
        assert command(*line, role=role).exception.exit_code == 3, line
    deeds = site.sql("SELECT action, target FROM audit_log ORDER BY id OFFSET $1", before)
    assert [row["action"] for row in deeds if row["target"] == user] == [
        "user.create", *["user.change"] * 5, "user.delete",
    ]  # fmt: skip


def test_who_names_the_default_organisation_from_afar_means_it(command, site) -> None:
    """A key of another organisation is not a key of that one."""
    person = command("user", "create", "afar", "-o", "json", role="admin")
    assert person.exception is None
    for line in ("user set afar --role admin", "user rm afar", "key create k --scope admin", "role ls"):
        refused = command(*line.split(), "--org", "default", role="admin").exception
        assert refused.exit_code in (3, 5), line
        assert "org" in refused.what
    assert command("user", "rm", "afar", role="admin").exception is None


def test_two_changes_of_a_user_at_once_are_both_made(command, site) -> None:
    assert command("user", "create", "both", role=None).exception is None

    async def change(connection) -> None:
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM users WHERE external_id = 'both' FOR UPDATE")
            line = ("user", "set", "both", "--role", "admin")
            waiting = asyncio.create_task(asyncio.to_thread(command, *line, role=None))
            asks = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
            while not await connection.fetchval(asks):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await connection.execute("UPDATE users SET disabled_at = now() WHERE external_id = 'both'")
        assert (await waiting).exception is None

    site.run(change)
    [row] = site.sql("SELECT role::text, disabled_at FROM users WHERE external_id = 'both'")
    assert (row["role"], row["disabled_at"] is not None) == ("admin", True)
