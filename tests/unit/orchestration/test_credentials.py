"""The ClickHouse users of workers: made once, renewed while somebody is heard of, gone when nobody is."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from aaiclick.data import client as data_client
from aaiclick.errors import UnauthorisedError, UnreachableError
from aaiclick.orchestration.credentials import (
    FRESH_SECONDS,
    PASS_SECONDS,
    RENEW_SECONDS,
    VALID_SECONDS,
    Credentials,
    worker_target,
)
from aaiclick.orchestration.tenants import Tenants, role_of, tenant_target
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.store.workers import Standing
from tests.unit.orchestration.servant import ADMIN, Servant

ONE, TWO = UUID(int=1), UUID(int=2)
W, V = 7_000_000_000_000_000_001, 7_000_000_000_000_000_002
PAIR = replace(ADMIN, cluster="pair", others=(replace(ADMIN, host="second", cluster=""),))


class Queue:
    """What PostgreSQL knows of workers."""

    def __init__(self) -> None:
        self.standing: dict[tuple[UUID, int], Standing] = {}

    async def fetch(self, _: str, orgs: list[UUID], ids: list[int], *__: float) -> list[dict[str, object]]:
        asked = zip(orgs, ids, strict=True)
        return [{"org_id": o, "id": i, "standing": self.standing.get((o, i), Standing.ENDED)} for o, i in asked]


class World:
    """Servers that share a ClickHouse and a queue; its time is everybody's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **traits) -> None:
        self.clickhouse = Servant(**traits)
        self.queue = Queue()
        monkeypatch.setattr(data_client, "connect", self.clickhouse.connect)

    def server(self, admin=ADMIN) -> Credentials:
        return Credentials(Tenants(admin), clock=lambda: self.clickhouse.now)

    async def lets_in(self, target) -> bool:
        try:
            await self.clickhouse.connect(target)
        except UnauthorisedError:
            return False
        return True

    def said(self) -> list[str]:
        """What was said about workers since it was last asked."""
        heard, self.clickhouse.said = self.clickhouse.said, []
        return [text for text in heard if str(W) in text or str(V) in text]


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def test_each_worker_is_somebody_else_and_never_its_organisation():
    targets = [worker_target(ADMIN, *who) for who in ((ONE, W), (ONE, V), (TWO, W), (DEFAULT_ORG_ID, W))]
    everybody = [*targets, tenant_target(ADMIN, ONE), ADMIN]
    assert len({each.user for each in everybody}) == len({each.password for each in everybody}) == 6
    assert [each.database for each in targets[:3]] == [tenant_target(ADMIN, org).database for org in (ONE, ONE, TWO)]
    assert targets[3].database == ADMIN.database
    assert worker_target(ADMIN, ONE, W) == targets[0] != worker_target(replace(ADMIN, password="new"), ONE, W)


@pytest.mark.parametrize("org_id", [ONE, DEFAULT_ORG_ID])
async def test_a_worker_is_given_a_user_with_the_role_of_its_organisation_that_lasts_an_hour(world, org_id):
    """By the clock of ClickHouse, whatever ours says."""
    world.clickhouse.skew[ADMIN.host] = 2 * VALID_SECONDS
    server = world.server()
    given = await server.give(org_id, W)
    assert given == worker_target(ADMIN, org_id, W)
    assert world.clickhouse.of(ADMIN.host)[given.user].roles == {role_of(ADMIN, org_id)}
    assert len(world.said()) == 3
    assert await server.give(org_id, W) == given
    assert world.said() == []  # once
    assert await world.server().give(org_id, W) == given  # another server gives the same
    world.clickhouse.now += VALID_SECONDS - 1
    assert await world.lets_in(given)
    world.clickhouse.now += 1
    assert not await world.lets_in(given)


async def test_a_worker_that_is_heard_of_keeps_its_user_for_a_statement_per_quarter_of_an_hour(world):
    """It need not claim: a long task does not."""
    one, two = world.server(), world.server()
    given = await one.give(ONE, W)
    world.queue.standing[ONE, W] = Standing.HEARD_OF
    world.said()
    begun = world.clickhouse.now
    while world.clickhouse.now < begun + 5 * VALID_SECONDS:
        world.clickhouse.now += int(PASS_SECONDS)
        await one.run_once(world.queue)
        assert await world.lets_in(given)
    said = world.said()
    assert len(said) == 5 * VALID_SECONDS / RENEW_SECONDS
    assert all(text.startswith(f"ALTER USER `{given.user}` VALID UNTIL") for text in said)
    for _ in range(20):  # a server that never gave it keeps it as well
        world.clickhouse.now += int(PASS_SECONDS)
        await two.run_once(world.queue)
        assert await world.lets_in(given)


async def test_a_worker_that_is_silent_loses_its_user_within_the_hour_and_has_it_back_when_it_is_back(world):
    server = world.server()
    given = await server.give(ONE, W)
    world.queue.standing[ONE, W] = Standing.SILENT
    for _ in range(VALID_SECONDS // int(PASS_SECONDS)):
        world.clickhouse.now += int(PASS_SECONDS)
        assert await server.run_once(world.queue) == {"renewed": 0, "dropped": 0, "refused": 0}
    assert not await world.lets_in(given)
    assert await world.lets_in(await server.give(ONE, W))


async def test_users_of_workers_that_have_ended_or_that_nobody_knows_are_dropped_and_no_others(world):
    server = world.server()
    gone, stays = await server.give(ONE, W), await server.give(TWO, V)
    world.queue.standing[TWO, V] = Standing.HEARD_OF
    users = world.clickhouse.of(ADMIN.host)
    names = ("main_x", f"main_{ONE.hex}_role", f"main_{ONE.hex}_12x", f"other_{ONE.hex}_{W}", f"main_{ONE.hex}_{2**63}")
    users |= dict.fromkeys(names, users[ADMIN.user])
    kept = {*users} - {gone.user}
    assert await server.run_once(world.queue) == {"renewed": 0, "dropped": 1, "refused": 0}
    assert {*users} == kept > {stays.user, tenant_target(ADMIN, ONE).user}
    assert await world.lets_in(await server.give(ONE, W))  # it is back after all


async def test_a_worker_that_says_goodbye_has_its_user_no_more(world):
    server = world.server()
    given = await server.give(ONE, W)
    assert server.knows(ONE, W)
    assert not server.knows(ONE, V)
    await server.drop(ONE, W)
    assert given.user not in world.clickhouse.of(ADMIN.host)
    assert not server.knows(ONE, W)


async def test_who_was_taken_for_dead_is_given_no_user_that_another_server_has_dropped(world):
    one, two = world.server(), world.server()
    await one.give(ONE, W)
    world.queue.standing[ONE, W] = Standing.SILENT  # stopped; PostgreSQL lets it be ended later than this
    world.clickhouse.now += int(FRESH_SECONDS)
    await one.run_once(world.queue)
    world.queue.standing[ONE, W] = Standing.ENDED
    await two.run_once(world.queue)
    assert await world.lets_in(await one.give(ONE, W))


async def test_on_a_cluster_nobody_but_the_operators_workers_is_given_anything(world):
    """Through Distributed tables a user there could write into every database of the other nodes."""
    server = world.server(PAIR)
    with pytest.raises(UnauthorisedError, match="on a cluster"):
        await server.give(ONE, W)
    assert await server.give(DEFAULT_ORG_ID, W) == PAIR
    assert not any("USER" in text or "ROLE" in text for text in world.clickhouse.said)
    assert {*world.clickhouse.of("second")} == {ADMIN.user}
    assert sum("CREATE DATABASE" in text for text in world.clickhouse.said) == 2  # for who holds the configured user


async def test_a_clickhouse_that_is_away_is_no_reason_to_give_anything_else(world):
    server = world.server()
    world.clickhouse.away.add(ADMIN.host)
    for org_id in (ONE, DEFAULT_ORG_ID):
        with pytest.raises(UnreachableError):
            await server.give(org_id, W)
    world.clickhouse.away.clear()
    given = await server.give(ONE, W)
    world.queue.standing[ONE, W] = Standing.HEARD_OF
    world.clickhouse.now += int(RENEW_SECONDS)
    world.clickhouse.away.add(ADMIN.host)
    with pytest.raises(UnreachableError):
        await server.run_once(world.queue)
    world.clickhouse.away.clear()
    assert (await server.run_once(world.queue))["renewed"] == 1
    world.clickhouse.now += VALID_SECONDS - 1
    assert await world.lets_in(given)


async def test_without_users_by_sql_nobody_but_the_operators_workers_is_given_the_configured_one(monkeypatch):
    world = World(monkeypatch, makes_users=False)
    server = world.server()
    with pytest.raises(UnauthorisedError, match="no user for each organisation") as refused:
        await server.give(ONE, W)
    assert "hunter2" not in str(refused.value)
    assert await server.give(DEFAULT_ORG_ID, W) == ADMIN
    said = len(world.clickhouse.said)
    assert await server.give(DEFAULT_ORG_ID, V) == ADMIN
    assert len(world.clickhouse.said) == said  # it does not ask for each


async def test_a_user_that_could_not_be_made_for_another_reason_is_not_replaced_by_the_configured_one(monkeypatch):
    world = World(monkeypatch, makes_users=False, refusal=241)
    with pytest.raises(UnauthorisedError, match="has not made a user for the worker") as refused:
        await world.server().give(DEFAULT_ORG_ID, W)
    assert worker_target(ADMIN, DEFAULT_ORG_ID, W).password not in str(refused.value)


async def test_a_user_that_cannot_be_changed_does_not_keep_others_from_being_renewed(world, caplog):
    server, later = world.server(), world.server()
    stuck, given = await server.give(ONE, W), await server.give(ONE, V)
    world.queue.standing = {(ONE, W): Standing.HEARD_OF, (ONE, V): Standing.HEARD_OF}
    world.clickhouse.stuck = {stuck.user}
    assert await later.run_once(world.queue) == {"renewed": 1, "dropped": 0, "refused": 1}
    assert stuck.user in caplog.text
    assert stuck.password not in caplog.text
    assert await world.lets_in(given)
