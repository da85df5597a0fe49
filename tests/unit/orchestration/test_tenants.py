"""Who an organisation is in ClickHouse."""

import json
from dataclasses import asdict, replace
from uuid import UUID

import pytest

from aaiclick.data import client as data_client
from aaiclick.errors import UnauthorisedError, UnreachableError
from aaiclick.orchestration.tenants import Tenants, tenant_target, user_statements
from aaiclick.settings import ClickHouseTarget
from aaiclick.store.words import DEFAULT_ORG_ID

ADMIN = ClickHouseTarget("db.example.org", 8443, "admin", "main", "hunter2", secure=True)
ONE, TWO = UUID(int=1), UUID(int=2)


class Servant:
    """A ClickHouse that lets some users in and obeys the admin, or does not."""

    def __init__(self, *, makes_users: bool) -> None:
        self.users = {ADMIN.user: ADMIN.password}
        self.said: list[str] = []
        self._makes_users = makes_users

    async def connect(self, target: ClickHouseTarget) -> "Servant":
        if self.users.get(target.user) != target.password:
            raise UnauthorisedError("refused")
        return self

    async def run(self, text: str) -> None:
        self.said.append(text)
        if text.startswith("CREATE USER") and not self._makes_users:
            raise UnauthorisedError("there is no writeable access storage")
        if "IDENTIFIED" in text:
            name, secret = text.split("`")[1], text.split("'")[1]
            self.users[name] = secret


@pytest.fixture
def servant(monkeypatch, request):
    made = Servant(makes_users=getattr(request, "param", True))
    monkeypatch.setattr(data_client, "connect", made.connect)
    return made


def test_each_organisation_is_somebody_else_somewhere_else():
    one, two = tenant_target(ADMIN, ONE), tenant_target(ADMIN, TWO)
    assert tenant_target(ADMIN, DEFAULT_ORG_ID) is ADMIN
    assert len({ADMIN.database, one.database, two.database}) == len({ADMIN.user, one.user, two.user}) == 3
    assert len({ADMIN.password, one.password, two.password}) == 3
    assert one == tenant_target(ADMIN, ONE)
    assert one.password != tenant_target(replace(ADMIN, password="other"), ONE).password


def test_on_a_cluster_it_is_the_same_on_every_node():
    cluster = replace(ADMIN, cluster="c", others=(replace(ADMIN, host="second", password="another"),))
    tenant = tenant_target(cluster, ONE)
    assert {(node.user, node.database, node.password) for node in (tenant, *tenant.others)} == {
        (tenant.user, tenant.database, tenant.password)
    }
    assert ClickHouseTarget.of(json.loads(json.dumps(asdict(tenant)))) == tenant


def test_a_user_may_do_everything_in_its_database_and_nothing_in_another():
    tenant = tenant_target(ADMIN, ONE)
    grants = [text for text in user_statements(tenant) if text.startswith("GRANT")]
    assert f"GRANT CURRENT GRANTS (ALL ON `{tenant.database}`.*) TO `{tenant.user}`" in grants
    harmless = ("ON system.", "CREATE TEMPORARY TABLE", "TABLE ENGINE")
    assert all(any(words in text for words in harmless) for text in grants[1:])
    assert not any(engine in text for text in grants for engine in ("File", "URL", "S3", "Remote"))


async def test_what_is_not_there_is_made_once(servant):
    tenants = Tenants(ADMIN)
    assert await tenants.ready(ONE) == await tenants.credential(ONE) == tenant_target(ADMIN, ONE)
    assert sum(text.startswith("CREATE USER") for text in servant.said) == 1
    assert f"CREATE DATABASE IF NOT EXISTS `{tenant_target(ADMIN, ONE).database}`" in servant.said
    said = len(servant.said)
    assert await Tenants(ADMIN).ready(ONE) == tenant_target(ADMIN, ONE)  # another process finds it
    assert servant.said[said:] == ["SELECT 1"]


@pytest.mark.parametrize("servant", [False], indirect=True)
async def test_without_users_of_their_own_the_configured_one_serves_us_and_is_given_to_nobody(servant):
    tenants = Tenants(ADMIN)
    target = await tenants.ready(ONE)
    assert (target.user, target.database) == (ADMIN.user, tenant_target(ADMIN, ONE).database)
    with pytest.raises(UnauthorisedError, match="no user for each organisation") as refused:
        await tenants.credential(ONE)
    assert "hunter2" not in str(refused.value)
    assert await tenants.credential(DEFAULT_ORG_ID) is ADMIN


async def test_a_clickhouse_that_is_away_is_no_reason_to_do_without_users(monkeypatch):
    async def away(_: ClickHouseTarget) -> None:
        raise UnreachableError("away")

    monkeypatch.setattr(data_client, "connect", away)
    with pytest.raises(UnreachableError):
        await Tenants(ADMIN).ready(ONE)
