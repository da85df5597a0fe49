"""WorkerUsers: creation, renewal, expiry and removal of the ClickHouse users of workers."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from aaiclick.data.runtime import clickhouse_client as data_client
from aaiclick.errors import UnauthorisedError, UnreachableError
from aaiclick.orchestration.http_worker_clickhouse_users import (
    FRESH_SECONDS,
    PASS_SECONDS,
    RENEW_SECONDS,
    VALID_SECONDS,
    WorkerUsers,
    worker_endpoint,
)
from aaiclick.orchestration.tenant_databases import TenantDatabases, role_name, tenant_endpoint
from aaiclick.store.engine.workers import WorkerLiveness
from aaiclick.store.enums import DEFAULT_ORG_ID
from tests.unit.orchestration.fake_clickhouse import ADMIN, FakeClickHouse

ONE, TWO = UUID(int=1), UUID(int=2)
W, V = 7_000_000_000_000_000_001, 7_000_000_000_000_000_002
PAIR = replace(ADMIN, cluster="pair", others=(replace(ADMIN, host="second", cluster=""),))


class Queue:
    """Fake PostgreSQL connection that returns the liveness of workers."""

    def __init__(self) -> None:
        self.liveness: dict[tuple[UUID, int], WorkerLiveness] = {}

    async def fetch(self, _: str, orgs: list[UUID], ids: list[int], *__: float) -> list[dict[str, object]]:
        workers = zip(orgs, ids, strict=True)
        return [{"org_id": o, "id": i, "liveness": self.liveness.get((o, i), WorkerLiveness.ENDED)} for o, i in workers]


class Installation:
    """Servers that share a ClickHouse, a queue and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options) -> None:
        self.clickhouse = FakeClickHouse(**options)
        self.queue = Queue()
        monkeypatch.setattr(data_client, "connect", self.clickhouse.connect)

    def server(self, admin=ADMIN) -> WorkerUsers:
        return WorkerUsers(TenantDatabases(admin), clock=lambda: self.clickhouse.now)

    async def accepts(self, endpoint) -> bool:
        try:
            await self.clickhouse.connect(endpoint)
        except UnauthorisedError:
            return False
        return True

    def statements(self) -> list[str]:
        """Statements about users of workers since the last call."""
        statements, self.clickhouse.statements = self.clickhouse.statements, []
        return [text for text in statements if str(W) in text or str(V) in text]


@pytest.fixture
def installation(monkeypatch):
    return Installation(monkeypatch)


def test_each_worker_has_its_own_user():
    endpoints = [worker_endpoint(ADMIN, *worker) for worker in ((ONE, W), (ONE, V), (TWO, W), (DEFAULT_ORG_ID, W))]
    all_endpoints = [*endpoints, tenant_endpoint(ADMIN, ONE), ADMIN]
    assert (
        len({endpoint.user for endpoint in all_endpoints})
        == len({endpoint.password for endpoint in all_endpoints})
        == 6
    )
    assert [endpoint.database for endpoint in endpoints[:3]] == [
        tenant_endpoint(ADMIN, org).database for org in (ONE, ONE, TWO)
    ]
    assert endpoints[3].database == ADMIN.database
    assert worker_endpoint(ADMIN, ONE, W) == endpoints[0] != worker_endpoint(replace(ADMIN, password="new"), ONE, W)


@pytest.mark.parametrize("org_id", [ONE, DEFAULT_ORG_ID])
async def test_worker_user_has_its_organisations_role_for_an_hour(installation, org_id):
    """By the clock of ClickHouse, not by the local one."""
    installation.clickhouse.skew[ADMIN.host] = 2 * VALID_SECONDS
    server = installation.server()
    credential = await server.get_credential(org_id, W)
    assert credential == worker_endpoint(ADMIN, org_id, W)
    assert installation.clickhouse.users_of(ADMIN.host)[credential.user].roles == {role_name(ADMIN, org_id)}
    assert len(installation.statements()) == 3
    assert await server.get_credential(org_id, W) == credential
    assert installation.statements() == []  # once
    assert await installation.server().get_credential(org_id, W) == credential  # another server gives the same
    installation.clickhouse.now += VALID_SECONDS - 1
    assert await installation.accepts(credential)
    installation.clickhouse.now += 1
    assert not await installation.accepts(credential)


async def test_user_of_a_live_worker_is_renewed_every_15_minutes(installation):
    """Also without claims: a worker with a long task makes none."""
    one, two = installation.server(), installation.server()
    credential = await one.get_credential(ONE, W)
    installation.queue.liveness[ONE, W] = WorkerLiveness.ALIVE
    installation.statements()
    started_at = installation.clickhouse.now
    while installation.clickhouse.now < started_at + 5 * VALID_SECONDS:
        installation.clickhouse.now += int(PASS_SECONDS)
        await one.run_once(installation.queue)
        assert await installation.accepts(credential)
    statements = installation.statements()
    assert len(statements) == 5 * VALID_SECONDS / RENEW_SECONDS
    assert all(text.startswith(f"ALTER USER `{credential.user}` VALID UNTIL") for text in statements)
    for _ in range(20):  # another server renews it as well
        installation.clickhouse.now += int(PASS_SECONDS)
        await two.run_once(installation.queue)
        assert await installation.accepts(credential)


async def test_user_of_a_silent_worker_expires_and_is_created_again(installation):
    server = installation.server()
    credential = await server.get_credential(ONE, W)
    installation.queue.liveness[ONE, W] = WorkerLiveness.SILENT
    for _ in range(VALID_SECONDS // int(PASS_SECONDS)):
        installation.clickhouse.now += int(PASS_SECONDS)
        assert await server.run_once(installation.queue) == {"renewed": 0, "dropped": 0, "refused": 0}
    assert not await installation.accepts(credential)
    assert await installation.accepts(await server.get_credential(ONE, W))


async def test_only_users_of_ended_or_unknown_workers_are_dropped(installation):
    server = installation.server()
    ended_user, live_user = await server.get_credential(ONE, W), await server.get_credential(TWO, V)
    installation.queue.liveness[TWO, V] = WorkerLiveness.ALIVE
    users = installation.clickhouse.users_of(ADMIN.host)
    names = ("main_x", f"main_{ONE.hex}_role", f"main_{ONE.hex}_12x", f"other_{ONE.hex}_{W}", f"main_{ONE.hex}_{2**63}")
    users |= dict.fromkeys(names, users[ADMIN.user])
    remaining = {*users} - {ended_user.user}
    assert await server.run_once(installation.queue) == {"renewed": 0, "dropped": 1, "refused": 0}
    assert {*users} == remaining > {live_user.user, tenant_endpoint(ADMIN, ONE).user}
    assert await installation.accepts(await server.get_credential(ONE, W))  # the worker is back


async def test_deregistered_worker_loses_its_user(installation):
    server = installation.server()
    credential = await server.get_credential(ONE, W)
    assert server.is_known(ONE, W)
    assert not server.is_known(ONE, V)
    await server.drop_user(ONE, W)
    assert credential.user not in installation.clickhouse.users_of(ADMIN.host)
    assert not server.is_known(ONE, W)


async def test_returning_worker_gets_no_user_dropped_elsewhere(installation):
    one, two = installation.server(), installation.server()
    await one.get_credential(ONE, W)
    installation.queue.liveness[ONE, W] = WorkerLiveness.SILENT  # stopped, but not yet ENDED
    installation.clickhouse.now += int(FRESH_SECONDS)
    await one.run_once(installation.queue)
    installation.queue.liveness[ONE, W] = WorkerLiveness.ENDED
    await two.run_once(installation.queue)
    assert await installation.accepts(await one.get_credential(ONE, W))


async def test_on_a_cluster_only_the_default_organisation_gets_access(installation):
    """Through Distributed tables a user there could write into every database of the other nodes."""
    server = installation.server(PAIR)
    with pytest.raises(UnauthorisedError, match="on a cluster"):
        await server.get_credential(ONE, W)
    assert await server.get_credential(DEFAULT_ORG_ID, W) == PAIR
    assert not any("USER" in text or "ROLE" in text for text in installation.clickhouse.statements)
    assert {*installation.clickhouse.users_of("second")} == {ADMIN.user}
    assert (
        sum("CREATE DATABASE" in text for text in installation.clickhouse.statements) == 2
    )  # for processes with the configured user


async def test_unreachable_clickhouse_gives_no_other_credential(installation):
    server = installation.server()
    installation.clickhouse.unreachable.add(ADMIN.host)
    for org_id in (ONE, DEFAULT_ORG_ID):
        with pytest.raises(UnreachableError):
            await server.get_credential(org_id, W)
    installation.clickhouse.unreachable.clear()
    credential = await server.get_credential(ONE, W)
    installation.queue.liveness[ONE, W] = WorkerLiveness.ALIVE
    installation.clickhouse.now += int(RENEW_SECONDS)
    installation.clickhouse.unreachable.add(ADMIN.host)
    with pytest.raises(UnreachableError):
        await server.run_once(installation.queue)
    installation.clickhouse.unreachable.clear()
    assert (await server.run_once(installation.queue))["renewed"] == 1
    installation.clickhouse.now += VALID_SECONDS - 1
    assert await installation.accepts(credential)


async def test_without_sql_users_only_the_default_organisation_gets_access(monkeypatch):
    installation = Installation(monkeypatch, allows_users=False)
    server = installation.server()
    with pytest.raises(UnauthorisedError, match="cannot have a user per organisation") as refused:
        await server.get_credential(ONE, W)
    assert "hunter2" not in str(refused.value)
    assert await server.get_credential(DEFAULT_ORG_ID, W) == ADMIN
    count = len(installation.clickhouse.statements)
    assert await server.get_credential(DEFAULT_ORG_ID, V) == ADMIN
    assert len(installation.clickhouse.statements) == count  # cached


async def test_failed_user_creation_does_not_give_the_configured_user(monkeypatch):
    installation = Installation(monkeypatch, allows_users=False, refusal=241)
    with pytest.raises(UnauthorisedError, match="did not create a user for the worker") as refused:
        await installation.server().get_credential(DEFAULT_ORG_ID, W)
    assert worker_endpoint(ADMIN, DEFAULT_ORG_ID, W).password not in str(refused.value)


async def test_refused_user_does_not_block_other_renewals(installation, caplog):
    server, later = installation.server(), installation.server()
    stuck, credential = await server.get_credential(ONE, W), await server.get_credential(ONE, V)
    installation.queue.liveness = {(ONE, W): WorkerLiveness.ALIVE, (ONE, V): WorkerLiveness.ALIVE}
    installation.clickhouse.stuck = {stuck.user}
    assert await later.run_once(installation.queue) == {"renewed": 1, "dropped": 0, "refused": 1}
    assert stuck.user in caplog.text
    assert stuck.password not in caplog.text
    assert await installation.accepts(credential)
