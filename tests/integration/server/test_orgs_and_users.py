"""Organisations, users, roles and keys over HTTP."""

from __future__ import annotations

import re

import httpx
import pytest

from aaiclick.store.enums import DEFAULT_ORG_ID


def test_operator_creates_an_organisation_and_its_first_admin(site) -> None:
    operator = site.as_("operator-admin")
    org = operator.post("/v1/orgs", json={"name": "New", "slug": "new", "max_running": 3, "rate_per_second": 0.5})
    assert org.status_code == 201
    org_id = org.json()["id"]
    assert (org.json()["max_running"], org.json()["rate_burst"]) == (3, 1)
    assert operator.post("/v1/orgs", json={"name": "New", "slug": "new"}).status_code == 409
    key = operator.post(f"/v1/orgs/{org_id}/keys", json={"name": "admin", "scopes": ["admin"]}).json()
    with httpx.Client(base_url=site.server.url, headers={"Authorization": f"Bearer {key['key']}"}, timeout=60) as admin:
        assert admin.get("/v1/whoami").json()["org_id"] == org_id
        assert [item["id"] for item in admin.get("/v1/orgs").json()["items"]] == [org_id]
        assert admin.get(f"/v1/orgs/{site.org}").status_code == 404
    assert operator.put(f"/v1/orgs/{org_id}", json={"name": "Newer"}).json()["max_running"] is None
    assert operator.post(f"/v1/orgs/{org_id}/pause").status_code == 204
    assert operator.get(f"/v1/orgs/{org_id}").json()["paused_at"] is not None
    assert operator.post(f"/v1/orgs/{org_id}/resume").status_code == 204
    assert len(operator.get("/v1/orgs").json()["items"]) == 4


def test_key_is_shown_once_and_revoked(site) -> None:
    admin = site.as_("admin")
    response = admin.post("/v1/keys", json={"name": "ci", "scopes": ["writer", "worker"], "lifetime_seconds": 60})
    key = response.json()
    assert response.headers["cache-control"] == "no-store"
    assert key["expires_at"] is not None
    assert key["key"] not in admin.get("/v1/keys").text
    assert "key_hash" not in admin.get(f"/v1/keys/{key['id']}").text
    with httpx.Client(
        base_url=site.server.url, headers={"Authorization": f"Bearer {key['key']}"}, timeout=60
    ) as client:
        assert client.get("/v1/jobs").status_code == 200
        assert admin.delete(f"/v1/keys/{key['id']}").json()["revoked_at"] is not None
        assert client.get("/v1/jobs").status_code == 401
    assert key["key"].rpartition("_")[2] not in site.server.log.read_text()


def test_key_creation_refuses_an_idempotency_key(site) -> None:
    """A replay would require storing the secret."""
    refused = site.as_("admin").post(
        "/v1/keys", json={"name": "x", "scopes": ["reader"]}, headers={"Idempotency-Key": "abc"}
    )
    assert refused.status_code == 400


def test_user_is_created_updated_disabled_and_deleted(site) -> None:
    admin = site.as_("admin")
    user = admin.post("/v1/users", json={"external_id": "sub|1", "email": "a@example.org", "role": "reader"}).json()
    assert admin.post("/v1/users", json={"external_id": "sub|1", "role": "reader"}).status_code == 409
    assert site.as_("other-admin").post("/v1/users", json={"external_id": "sub|1", "role": "admin"}).status_code == 409
    key = admin.post("/v1/keys", json={"name": "his", "scopes": ["reader"], "user_id": user["id"]}).json()
    with httpx.Client(base_url=site.server.url, headers={"Authorization": f"Bearer {key['key']}"}, timeout=60) as his:
        assert his.get("/v1/jobs").status_code == 200
        changed = admin.patch(f"/v1/users/{user['id']}", json={"role": "writer", "disabled": True}).json()
        assert (changed["role"], changed["disabled_at"] is None) == ("writer", False)
        assert his.get("/v1/jobs").status_code == 401
    enabled = admin.patch("/v1/users/sub|1", json={"disabled": False, "email": None}).json()
    assert (enabled["role"], enabled["email"], enabled["disabled_at"]) == ("writer", None, None)
    assert admin.delete(f"/v1/users/{user['id']}").status_code == 204
    assert admin.get(f"/v1/users/{user['id']}").status_code == 404
    assert admin.get(f"/v1/keys/{key['id']}").status_code == 404


def test_roles_have_members(site) -> None:
    admin = site.as_("admin")
    role = admin.post("/v1/roles", json={"slug": "analyst", "name": "Analyst"}).json()["id"]
    user = admin.post("/v1/users", json={"external_id": "sub|2", "role": "reader"}).json()["id"]
    other_user = site.as_("other-admin").post("/v1/users", json={"external_id": "sub|3", "role": "reader"}).json()["id"]
    assert admin.put(f"/v1/roles/{role}/members/{other_user}").status_code == 404
    assert admin.put(f"/v1/roles/{role}/members/{user}").status_code == 200
    assert admin.put(f"/v1/roles/{role}/members/{user}").status_code == 200
    members = admin.get(f"/v1/roles/{role}/members").json()["items"]
    assert [member["user_id"] for member in members] == [user]
    assert admin.delete(f"/v1/roles/{role}/members/{user}").status_code == 204
    assert admin.delete(f"/v1/roles/{role}/members/{user}").status_code == 404
    assert [listed_role["slug"] for listed_role in site.as_("reader").get("/v1/roles").json()["items"]] == ["analyst"]
    assert admin.delete(f"/v1/roles/{role}").status_code == 204


@pytest.mark.parametrize("who", ["admin", "other-admin", "operator-reader"])
def test_only_the_operator_changes_organisations(site, who: str) -> None:
    client = site.as_(who)
    assert client.post("/v1/orgs", json={"name": "x", "slug": "x"}).status_code == 403
    assert client.put(f"/v1/orgs/{site.org}", json={"name": "x", "weight": 1000}).status_code == 403


def test_every_change_is_in_the_audit_log_of_its_organisation(site) -> None:
    actions = {entry["action"] for entry in site.as_("admin").get("/v1/audit").json()["items"]}
    assert {"key.create", "key.revoke", "user.create", "user.delete", "role.add", "role.remove"} <= actions
    assert "org.create" not in actions
    operators = {entry["action"] for entry in site.as_("operator-admin").get("/v1/audit").json()["items"]}
    assert {"org.create", "org.change", "org.pause"} <= operators


def sign_in(site, credential: str) -> int:
    with httpx.Client(base_url=site.server.url, timeout=60) as browser:
        form = re.search(r'name="csrf" value="(\w+)"', browser.get("/sign-in").text)
        assert form is not None
        return browser.post("/sign-in", data={"csrf": form.group(1), "credential": credential}).status_code


def test_sign_ins_are_audited_and_failed_ones_are_bounded(site) -> None:
    """Worker keys cannot sign in. Only the operator sees failed sign-ins, without the credential."""
    key = site.keys["reader"]
    prefix = key.rpartition("_")[0]
    assert sign_in(site, key) == 303
    wrong = [f"{prefix}_{'x' * 43}", "aai_nobody_secret", "a.b.c", site.keys["worker"]] + ["aai_again_x"] * 16
    assert [sign_in(site, credential) for credential in wrong] == [401] * len(wrong)
    question = "SELECT org_id, actor, action, detail::text FROM audit_log WHERE action LIKE 'sign_in%' ORDER BY id"
    first, *refused = site.sql(question)
    assert tuple(first) == (site.org, f"key {prefix}", "sign_in", '{"by": "key"}')
    assert len(refused) == 10
    assert {(row["org_id"], row["actor"], row["action"]) for row in refused} == {
        (DEFAULT_ORG_ID, "nobody", "sign_in.refused")
    }
    assert [row["detail"] for row in refused][:3] == ['{"by": "key"}', '{"by": "key"}', '{"by": "token"}']
