"""API keys: only their hash is stored, and only active keys are valid."""

from __future__ import annotations

import asyncio

import pytest

from aaiclick.errors import NotFoundError, SubmitError
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tenancy import api_keys, orgs, users


@pytest.fixture
async def db(aaiclick_postgres):
    connection = await connect(aaiclick_postgres)
    yield connection
    await connection.close()


async def make(db, **options):
    return await api_keys.create_key(
        db, **({"org_id": DEFAULT_ORG_ID, "name": "k", "scopes": ["reader", "worker"]} | options)
    )


async def test_key_authenticates_with_its_scopes(db) -> None:
    created_key = await make(db)
    verified = await api_keys.verify_key(db, created_key.text)
    assert verified is not None
    assert (verified.org_id, verified.scopes, verified.prefix) == (
        DEFAULT_ORG_ID,
        ("reader", "worker"),
        created_key.row.prefix,
    )


async def test_secret_of_a_key_is_not_stored(db) -> None:
    created_key = await make(db)
    secret = created_key.text.rpartition("_")[2]
    row = await db.fetchrow("SELECT * FROM api_keys")
    assert secret not in str(dict(row))
    assert secret.encode() not in bytes(row["key_hash"])
    assert secret not in repr(created_key)


SPOILT = {
    "another last letter": lambda text: text[:-1] + ("a" if text[-1] != "a" else "b"),
    "longer": lambda text: text + "a",
    "shorter": lambda text: text[:-1],
    "another mark": lambda text: text.replace("aai_", "aaj_"),
    "nothing": lambda text: "",
    "other separators": lambda text: text.replace("_", "-"),
    "not ascii": lambda text: text[:-1] + "é",
    "nobody's": lambda text: "aai_" + "x" * 12 + "_" + "y" * 43,
}


@pytest.mark.parametrize("alter", SPOILT.values(), ids=SPOILT)
async def test_altered_key_is_invalid(db, alter) -> None:
    created_key = await make(db)
    assert await api_keys.verify_key(db, alter(created_key.text)) is None


async def test_expired_revoked_and_disabled_keys_are_invalid(db) -> None:
    expired = await make(db, lifetime_seconds=-1)
    revoked = await make(db)
    await api_keys.revoke_key(db, DEFAULT_ORG_ID, str(revoked.row.id))
    user = await users.create_user(db, DEFAULT_ORG_ID, external_id="ada", role="reader")
    disabled = await make(db, user_id=user.id)
    assert await api_keys.verify_key(db, disabled.text) is not None
    await users.update_user(db, DEFAULT_ORG_ID, user.id, email=None, role="reader", disabled=True)
    for created_key in (expired, revoked, disabled):
        assert await api_keys.verify_key(db, created_key.text) is None


async def test_key_cannot_belong_to_a_user_of_another_org(db) -> None:
    other = await orgs.create_org(db, name="Other", slug="other")
    user = await users.create_user(db, other.id, external_id="eve", role="admin")
    with pytest.raises(NotFoundError, match="There is no user"):
        await make(db, user_id=user.id)


async def test_unknown_scopes_are_refused(db) -> None:
    for scopes in ([], ["owner"], ["reader", "root"]):
        with pytest.raises(SubmitError, match="cannot have the scopes"):
            await make(db, scopes=scopes)


async def test_first_key_is_created_once_by_concurrent_callers(db, aaiclick_postgres) -> None:
    connections = [await connect(aaiclick_postgres) for _ in range(5)]
    created_keys = await asyncio.gather(*(api_keys.create_first_key(connection) for connection in connections))
    assert len([key for key in created_keys if key is not None]) == 1
    assert await api_keys.create_first_key(db) is None
    for connection in connections:
        await connection.close()


async def test_wrong_secret_and_wrong_prefix_take_the_same_steps(db, monkeypatch) -> None:
    """One lookup and one constant-time comparison: timing does not reveal whether the prefix exists."""
    created_key = await make(db)
    await api_keys.verify_key(db, created_key.text)
    steps: list[str] = []
    compare = api_keys.hmac.compare_digest

    class Watched:
        async def fetchrow(self, *arguments):
            steps.append("lookup")
            return await db.fetchrow(*arguments)

    def compare_digest(*arguments):
        steps.append("compare")
        return compare(*arguments)

    monkeypatch.setattr(api_keys.hmac, "compare_digest", compare_digest)
    for altered in (created_key.text[:-1] + "-", f"aai_{'z' * 12}_{'z' * 43}", created_key.text[:-43] + "z" * 43):
        steps.clear()
        assert await api_keys.verify_key(Watched(), altered) is None
        assert steps == ([] if altered.endswith("-") else ["lookup", "compare"])


async def test_last_use_is_recorded_once_a_minute(db) -> None:
    created_key = await make(db)
    await api_keys.verify_key(db, created_key.text)
    first = await db.fetchval("SELECT last_used_at FROM api_keys")
    await api_keys.verify_key(db, created_key.text)
    assert first is not None
    assert await db.fetchval("SELECT last_used_at FROM api_keys") == first
