"""TenantDatabases: database, role and user of each organisation."""

import json
from dataclasses import asdict, replace
from uuid import UUID

import pytest

from aaiclick.data.runtime import clickhouse_client as data_client
from aaiclick.errors import UnreachableError
from aaiclick.orchestration.tenant_databases import TenantDatabases, role_name, role_statements, tenant_endpoint
from aaiclick.server_addresses import ClickHouseEndpoint
from aaiclick.store.enums import DEFAULT_ORG_ID
from tests.unit.orchestration.fake_clickhouse import ADMIN, FakeClickHouse

ONE, TWO = UUID(int=1), UUID(int=2)


@pytest.fixture
def clickhouse(monkeypatch, request):
    clickhouse = FakeClickHouse(allows_users=getattr(request, "param", True))
    monkeypatch.setattr(data_client, "connect", clickhouse.connect)
    return clickhouse


def test_each_organisation_has_its_own_user_and_database():
    one, two = tenant_endpoint(ADMIN, ONE), tenant_endpoint(ADMIN, TWO)
    assert tenant_endpoint(ADMIN, DEFAULT_ORG_ID) is ADMIN
    assert len({ADMIN.database, one.database, two.database}) == len({ADMIN.user, one.user, two.user}) == 3
    assert len({ADMIN.password, one.password, two.password}) == 3
    assert one == tenant_endpoint(ADMIN, ONE)
    assert one.password != tenant_endpoint(replace(ADMIN, password="other"), ONE).password


async def test_cluster_has_tenant_databases_and_no_users(clickhouse):
    cluster = replace(ADMIN, cluster="c", others=(replace(ADMIN, host="second"),))
    endpoint = await TenantDatabases(cluster).ensure_database(ONE)
    assert endpoint == cluster.with_database(tenant_endpoint(cluster, ONE).database)
    assert clickhouse.statements == [f"CREATE DATABASE IF NOT EXISTS `{endpoint.database}`"] * 2
    assert ClickHouseEndpoint.of(json.loads(json.dumps(asdict(endpoint)))) == endpoint


def test_role_grants_access_to_one_database_only():
    tenant, role = tenant_endpoint(ADMIN, ONE), role_name(ADMIN, ONE)
    grants = [text for text in role_statements(role, tenant.database) if text.startswith("GRANT")]
    assert grants[0] == f"GRANT CURRENT GRANTS (ALL ON `{tenant.database}`.*) TO `{role}`"
    harmless = ("SELECT ON system.", "CREATE TEMPORARY TABLE ON *.*", "TABLE ENGINE ON ")
    [rest] = grants[1:]
    assert all(text.startswith(harmless) for text in rest.removeprefix("GRANT ").partition(" TO ")[0].split(", "))
    assert not any(engine in rest for engine in ("File", "URL", "S3", "Remote", "Distributed"))


async def test_missing_database_and_user_are_created_once(clickhouse):
    tenant = tenant_endpoint(ADMIN, ONE)
    assert await TenantDatabases(ADMIN).ensure_database(ONE) == tenant
    assert sum(text.startswith("CREATE USER") for text in clickhouse.statements) == 1
    assert f"CREATE DATABASE IF NOT EXISTS `{tenant.database}`" in clickhouse.statements
    assert clickhouse.users_of(ADMIN.host)[tenant.user].roles == {role_name(ADMIN, ONE)}
    count = len(clickhouse.statements)
    assert await TenantDatabases(ADMIN).ensure_database(ONE) == tenant  # another process finds it
    assert clickhouse.statements[count:] == ["SELECT 1"]


@pytest.mark.parametrize("clickhouse", [False], indirect=True)
async def test_configured_user_is_used_without_sql_users(clickhouse):
    endpoint = await TenantDatabases(ADMIN).ensure_database(ONE)
    assert (endpoint.user, endpoint.database) == (ADMIN.user, tenant_endpoint(ADMIN, ONE).database)


async def test_unreachable_clickhouse_raises_and_is_not_cached(clickhouse):
    clickhouse.unreachable.add(ADMIN.host)
    with pytest.raises(UnreachableError):
        await TenantDatabases(ADMIN).ensure_database(ONE)
