"""API keys: only their hash is kept, and only a living one opens anything."""

from __future__ import annotations

import asyncio

import pytest

from aaiclick.errors import NotFoundError, SubmitError
from aaiclick.store import keys, orgs, users
from aaiclick.store.engine import connect
from aaiclick.store.words import DEFAULT_ORG_ID


@pytest.fixture
async def db(aaiclick_postgres):
    connection = await connect(aaiclick_postgres)
    yield connection
    await connection.close()


async def make(db, **options):
    return await keys.create_key(
        db, **({"org_id": DEFAULT_ORG_ID, "name": "k", "scopes": ["reader", "worker"]} | options)
    )


async def test_a_key_opens_what_it_was_made_for(db) -> None:
    made = await make(db)
    holder = await keys.verify_key(db, made.text)
    assert holder is not None
    assert (holder.org_id, holder.scopes, holder.prefix) == (DEFAULT_ORG_ID, ("reader", "worker"), made.row["prefix"])


async def test_no_part_of_a_secret_is_kept(db) -> None:
    made = await make(db)
    secret = made.text.rpartition("_")[2]
    row = await db.fetchrow("SELECT * FROM api_keys")
    assert secret not in str(dict(row))
    assert secret.encode() not in bytes(row["key_hash"])
    assert secret not in repr(made)


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


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
async def test_a_key_that_is_not_exact_opens_nothing(db, spoil) -> None:
    made = await make(db)
    assert await keys.verify_key(db, spoil(made.text)) is None


async def test_an_expired_a_revoked_and_a_disabled_users_key_open_nothing(db) -> None:
    expired = await make(db, lifetime_seconds=-1)
    revoked = await make(db)
    await keys.revoke_key(db, DEFAULT_ORG_ID, revoked.row["id"])
    user = await users.create_user(db, DEFAULT_ORG_ID, external_id="ada", role="reader")
    disabled = await make(db, user_id=user["id"])
    assert await keys.verify_key(db, disabled.text) is not None
    await users.change_user(db, DEFAULT_ORG_ID, user["id"], email=None, role="reader", disabled=True)
    for made in (expired, revoked, disabled):
        assert await keys.verify_key(db, made.text) is None


async def test_a_key_cannot_stand_for_a_user_of_another_org(db) -> None:
    other = await orgs.create_org(db, name="Other", slug="other")
    user = await users.create_user(db, other["id"], external_id="eve", role="admin")
    with pytest.raises(NotFoundError, match="There is no user"):
        await make(db, user_id=user["id"])


async def test_unknown_scopes_are_refused(db) -> None:
    for scopes in ([], ["owner"], ["reader", "root"]):
        with pytest.raises(SubmitError, match="cannot have the scopes"):
            await make(db, scopes=scopes)


async def test_of_many_that_ask_for_the_first_key_one_gets_it(db, aaiclick_postgres) -> None:
    connections = [await connect(aaiclick_postgres) for _ in range(5)]
    made = await asyncio.gather(*(keys.create_first_key(connection) for connection in connections))
    assert len([key for key in made if key is not None]) == 1
    assert await keys.create_first_key(db) is None
    for connection in connections:
        await connection.close()


async def test_a_wrong_secret_and_a_wrong_prefix_take_the_same_steps(db, monkeypatch) -> None:
    """One lookup and one comparison in constant time: neither tells whether the prefix is somebody's."""
    made = await make(db)
    await keys.verify_key(db, made.text)
    steps: list[str] = []
    compare = keys.hmac.compare_digest

    class Watched:
        async def fetchrow(self, *arguments):
            steps.append("lookup")
            return await db.fetchrow(*arguments)

    def compare_digest(*arguments):
        steps.append("compare")
        return compare(*arguments)

    monkeypatch.setattr(keys.hmac, "compare_digest", compare_digest)
    for spoilt in (made.text[:-1] + "-", f"aai_{'z' * 12}_{'z' * 43}", made.text[:-43] + "z" * 43):
        steps.clear()
        assert await keys.verify_key(Watched(), spoilt) is None
        assert steps == ([] if spoilt.endswith("-") else ["lookup", "compare"])


async def test_use_is_noted_once_a_minute(db) -> None:
    made = await make(db)
    await keys.verify_key(db, made.text)
    first = await db.fetchval("SELECT last_used_at FROM api_keys")
    await keys.verify_key(db, made.text)
    assert first is not None
    assert await db.fetchval("SELECT last_used_at FROM api_keys") == first
