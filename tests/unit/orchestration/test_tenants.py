"""Who an organisation is in ClickHouse."""

import json
from dataclasses import asdict, replace
from uuid import UUID

import pytest

from aaiclick.data import client as data_client
from aaiclick.errors import UnreachableError
from aaiclick.orchestration.tenants import Tenants, role_of, role_statements, tenant_target
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.targets import ClickHouseTarget
from tests.unit.orchestration.servant import ADMIN, Servant

ONE, TWO = UUID(int=1), UUID(int=2)


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


async def test_on_a_cluster_the_configured_user_serves_us_in_a_database_on_every_node(servant):
    cluster = replace(ADMIN, cluster="c", others=(replace(ADMIN, host="second"),))
    target = await Tenants(cluster).ready(ONE)
    assert target == cluster.with_database(tenant_target(cluster, ONE).database)
    assert servant.said == [f"CREATE DATABASE IF NOT EXISTS `{target.database}`"] * 2
    assert ClickHouseTarget.of(json.loads(json.dumps(asdict(target)))) == target


def test_an_organisation_may_do_everything_in_its_database_and_nothing_in_another():
    tenant, role = tenant_target(ADMIN, ONE), role_of(ADMIN, ONE)
    grants = [text for text in role_statements(role, tenant.database) if text.startswith("GRANT")]
    assert grants[0] == f"GRANT CURRENT GRANTS (ALL ON `{tenant.database}`.*) TO `{role}`"
    harmless = ("SELECT ON system.", "CREATE TEMPORARY TABLE ON *.*", "TABLE ENGINE ON ")
    [rest] = grants[1:]
    assert all(text.startswith(harmless) for text in rest.removeprefix("GRANT ").partition(" TO ")[0].split(", "))
    assert not any(engine in rest for engine in ("File", "URL", "S3", "Remote", "Distributed"))


async def test_what_is_not_there_is_made_once(servant):
    tenant = tenant_target(ADMIN, ONE)
    assert await Tenants(ADMIN).ready(ONE) == tenant
    assert sum(text.startswith("CREATE USER") for text in servant.said) == 1
    assert f"CREATE DATABASE IF NOT EXISTS `{tenant.database}`" in servant.said
    assert servant.of(ADMIN.host)[tenant.user].roles == {role_of(ADMIN, ONE)}
    said = len(servant.said)
    assert await Tenants(ADMIN).ready(ONE) == tenant  # another process finds it
    assert servant.said[said:] == ["SELECT 1"]


@pytest.mark.parametrize("servant", [False], indirect=True)
async def test_without_users_of_their_own_the_configured_one_serves_us(servant):
    target = await Tenants(ADMIN).ready(ONE)
    assert (target.user, target.database) == (ADMIN.user, tenant_target(ADMIN, ONE).database)


async def test_a_clickhouse_that_is_away_is_no_reason_to_do_without_users(servant):
    servant.away.add(ADMIN.host)
    with pytest.raises(UnreachableError):
        await Tenants(ADMIN).ready(ONE)
