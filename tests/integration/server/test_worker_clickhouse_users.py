"""ClickHouse users of organisations and workers: what their grants allow on a real ClickHouse.

The ClickHouse of the wheel keeps users in a file and cannot create them by SQL. A proxy records the statements and
writes the users with exactly their grants into the file. ClickHouse's parser checks the statements themselves.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from uuid import UUID

import clickhouse_connect
import httpx
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from aaiclick.orchestration.http_worker_clickhouse_users import (
    VALID_SECONDS,
    drop_statement,
    renew_statement,
    valid_until,
    worker_endpoint,
)
from aaiclick.orchestration.tenant_databases import (
    quote_identifier,
    role_name,
    role_statements,
    tenant_endpoint,
    user_statements,
)
from aaiclick.server_addresses import ClickHouseEndpoint
from aaiclick.store.engine.workers import WorkerLiveness, check_liveness
from aaiclick.store.enums import DEFAULT_ORG_ID
from tests.integration.cluster.nodes import CLUSTER, ClusterNode, _free_ports
from tests.integration.server.clickhouse_proxy import ClickHouseProxy
from tests.integration.server.conftest import Site, _populate, environment_for, start_server, with_connection
from tests.integration.server.http_worker import HttpWorker, enqueue

NOBODY = 4711
"""A worker id that has a ClickHouse user but no row in PostgreSQL."""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    http, tcp = _free_ports(2)
    cluster_node = ClusterNode(tmp_path_factory.mktemp("tenants") / "node", http, tcp)
    cluster_node.write_config([tcp])
    cluster_node.start()
    yield cluster_node
    cluster_node.kill()


@pytest.fixture(scope="module")
def clickhouse_proxy(node):
    proxy = ClickHouseProxy(node)
    yield proxy
    proxy.close()


@pytest.fixture(scope="module")
def admin(node, clickhouse_proxy) -> ClickHouseEndpoint:
    """The ClickHouse endpoint and user of the server."""
    return replace(node.endpoint, port=clickhouse_proxy.port)


@pytest.fixture(scope="module")
def site(aaiclick_stack, _aaiclick_template, admin, tmp_path_factory):
    """A server with a ClickHouse that can create users."""
    database = aaiclick_stack.run(aaiclick_stack.take_database())
    endpoint = aaiclick_stack.connection.postgres_endpoint().with_database(database)
    org_id, other_org_id, keys = asyncio.run(with_connection(endpoint, _populate))
    directory = tmp_path_factory.mktemp("server")
    environment = environment_for(endpoint, admin.url, directory)
    server = start_server(environment, directory / "server.log")
    test_site = Site(server, endpoint, directory, environment, org_id, other_org_id, keys, aaiclick_stack)
    yield test_site
    for client in test_site.clients.values():
        client.close()
    assert server.stop() == 0
    aaiclick_stack.run(aaiclick_stack.return_database(database))


def claim(site, prefix: str = "") -> tuple[HttpWorker, ClickHouseEndpoint]:
    """A worker and the ClickHouse endpoint of its claim."""
    http_worker = HttpWorker(site, f"{prefix}worker")
    enqueue(site, "data", f"{prefix}writer")
    answer = http_worker.post("tasks/claim", worker_id=http_worker.id, queues=["data"]).json()
    assert answer["no_clickhouse"] is None
    fetched = http_worker.post("tasks/fetch", lease=answer["tasks"][0]["lease"]).json()
    assert fetched["clickhouse"] == answer["clickhouse"]
    return http_worker, ClickHouseEndpoint.of(answer["clickhouse"])


@pytest.fixture(scope="module")
def credentials(site, node, clickhouse_proxy, admin) -> dict[str, ClickHouseEndpoint]:
    """Credentials of workers of the three organisations, which exist in ClickHouse."""
    credentials = {prefix: claim(site, prefix)[1] for prefix in ("", "other-", "operator-")}
    clickhouse_proxy.statements += user_statements(worker_endpoint(admin, site.org, NOBODY), role_name(admin, site.org))
    clickhouse_proxy.write_users()
    node.kill()
    node.start()
    client = node.connect_admin()
    for org_id in (site.org, site.other, DEFAULT_ORG_ID):
        database = tenant_endpoint(admin, org_id).database
        client.command(f"CREATE TABLE `{database}`.secret (x UInt8) ENGINE = MergeTree ORDER BY x")
        client.command(f"INSERT INTO `{database}`.secret VALUES (7)")
    client.close()
    return credentials


@pytest.fixture
def client(node, credentials):
    connected_client = connect(node, credentials[""])
    yield connected_client
    connected_client.close()


def connect(node: ClusterNode, endpoint: ClickHouseEndpoint):
    """Connect to ClickHouse directly, without the proxy."""
    return clickhouse_connect.get_client(
        host=endpoint.host,
        port=node.http,
        username=endpoint.user,
        password=endpoint.password,
        database=endpoint.database,
    )


def test_worker_gets_a_clickhouse_user_of_its_own(site, admin, clickhouse_proxy, credentials) -> None:
    orgs = {"": site.org, "other-": site.other, "operator-": DEFAULT_ORG_ID}
    for prefix, endpoint in credentials.items():
        worker_id = int(endpoint.user.rpartition("_")[2])
        assert endpoint == worker_endpoint(admin, orgs[prefix], worker_id)
        statements = [text for text in clickhouse_proxy.statements if f"`{endpoint.user}`" in text]
        kinds = [text.split()[0] for text in statements]
        assert kinds == ["CREATE", "ALTER", "GRANT"] * (len(kinds) // 3)  # twice if a pass of the server renews it
        assert kinds
        assert all("VALID UNTIL" in text for text in statements[:2])
    secrets = [tenant_endpoint(admin, org_id).password for org_id in orgs.values()]
    assert not any(secret in str(endpoint.password) for secret in secrets for endpoint in credentials.values())


def test_user_of_an_ended_worker_is_dropped(site, clickhouse_proxy) -> None:
    http_worker, endpoint = claim(site)
    assert http_worker.post("workers/settle", worker_id=http_worker.id, overdue=[]).status_code == 204
    clickhouse_proxy.wait_until(lambda statements: drop_statement(endpoint.user) in statements)


def test_second_server_shares_renews_and_drops_users(site, clickhouse_proxy, admin, credentials, tmp_path) -> None:
    own_credential, other_credential = credentials[""], credentials["other-"]
    enqueue(site, "again")
    clickhouse_proxy.statements.clear()
    server = start_server(site.environment, tmp_path / "second.log")
    key = {"Authorization": f"Bearer {site.keys['worker']}"}
    body = {"worker_id": own_credential.user.rpartition("_")[2], "queues": ["again"]}
    answer = httpx.post(f"{server.url}/v1/worker-api/tasks/claim", json=body, headers=key, timeout=30).json()
    assert ClickHouseEndpoint.of(answer["clickhouse"]) == own_credential
    renewed = f"ALTER USER `{other_credential.user}` VALID UNTIL "
    dropped = drop_statement(worker_endpoint(admin, site.org, NOBODY).user)
    clickhouse_proxy.wait_until(
        lambda statements: dropped in statements and any(text.startswith(renewed) for text in statements)
    )
    assert [text for text in clickhouse_proxy.statements if text.startswith("DROP")] == [dropped]
    assert server.stop() == 0


def test_workers_are_active_silent_or_stopped(site) -> None:
    active, silent, stopped, ended = (int(HttpWorker(site, "worker").id) for _ in range(4))
    site.sql("UPDATE workers SET last_heartbeat = now() - interval '100 s' WHERE id = $1", silent)
    for worker_id, seconds in ((stopped, 10), (ended, 100)):
        moment = f"now() - interval '{seconds} s'"
        site.sql(f"UPDATE workers SET status = 'STOPPED', stopped_at = {moment} WHERE id = $1", worker_id)
    ids = (active, silent, stopped, ended, NOBODY)
    worker_keys = [*((site.org, worker_id) for worker_id in ids), (site.other, active)]
    liveness = site.run(lambda connection: check_liveness(connection, worker_keys, alive_seconds=50, ended_seconds=50))
    expected = [WorkerLiveness.ALIVE, WorkerLiveness.SILENT, WorkerLiveness.SILENT, *[WorkerLiveness.ENDED] * 3]
    assert liveness == dict(zip(worker_keys, expected, strict=True))


def test_lease_of_another_worker_gives_no_credentials(site) -> None:
    """A local worker has no ClickHouse user, and its lease gives none."""
    [shared] = site.sql("INSERT INTO workers (id, hostname, pid, pool_size) VALUES (77, 'beside', 1, 1) RETURNING id")
    http_worker = HttpWorker(site, "worker")
    enqueue(site, "shared")
    [task] = http_worker.claim(queues=["shared"])
    site.sql("UPDATE tasks SET worker_id = $2 WHERE id = $1", int(task["lease"]["task_id"]), shared["id"])
    answer = http_worker.post("tasks/fetch", lease=task["lease"])
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_worker_user_is_confined_to_its_database(site, node, admin, credentials, client) -> None:
    for engine in ("Memory", "StripeLog", "TinyLog", "ReplacingMergeTree ORDER BY x", "MergeTree ORDER BY x"):
        client.command(f"CREATE OR REPLACE TABLE mine (x UInt64) ENGINE = {engine}")
    client.command("INSERT INTO mine SELECT number FROM numbers(3)")
    assert client.query("SELECT sum(x) FROM mine").result_rows == [(3,)]
    assert client.query("SELECT x FROM secret").result_rows == [(7,)]
    client.command("DROP TABLE mine")
    other_database = tenant_endpoint(admin, site.other).database
    for refused in (
        f"SELECT * FROM `{other_database}`.secret",
        f"INSERT INTO `{other_database}`.secret VALUES (1)",
        f"DROP TABLE `{other_database}`.secret",
        f"CREATE TABLE `{other_database}`.more (x UInt8) ENGINE = Memory",
        f"CREATE VIEW spy AS SELECT * FROM `{other_database}`.secret",
        f"SELECT * FROM merge('{other_database}', 'secret')",
        f"SELECT * FROM remote('127.0.0.1:{node.tcp}', '{other_database}', 'secret', '{node.endpoint.user}', 'x')",
        "SELECT * FROM file('/etc/passwd', 'LineAsString')",
        f"SELECT * FROM url('http://127.0.0.1:{node.http}/', 'LineAsString')",
        "CREATE TABLE door (x String) ENGINE = File(CSV)",
        f"CREATE TABLE door (x String) ENGINE = URL('http://127.0.0.1:{node.http}/', CSV)",
        f"CREATE TABLE door (x UInt8) ENGINE = Distributed('{CLUSTER}', '{other_database}', 'secret')",
        f"SELECT * FROM cluster('{CLUSTER}', '{other_database}', 'secret')",
        "CREATE DATABASE another",
        "CREATE USER another",
        f"GRANT ALL ON *.* TO `{credentials[''].user}`",
        renew_statement(credentials[""].user, "infinity"),
        "SYSTEM SHUTDOWN",
    ):
        with pytest.raises(DatabaseError, match=r"ACCESS_DENIED|UNKNOWN_DATABASE|CANNOT_EXTRACT_TABLE"):
            client.query(refused)


def test_workers_of_the_operator_are_confined(site, node, admin, credentials) -> None:
    client = connect(node, credentials["operator-"])
    assert client.query("SELECT x FROM secret").result_rows == [(7,)]
    for refused in (f"SELECT * FROM `{tenant_endpoint(admin, site.org).database}`.secret", "CREATE USER another"):
        with pytest.raises(DatabaseError, match=r"ACCESS_DENIED"):
            client.query(refused)
    client.close()


@pytest.mark.parametrize(
    "table",
    [
        "tables",
        "databases",
        "columns",
        "parts",
        "processes",
        "users",
        "grants",
        "query_log",
        "settings_profiles",
        "roles",
        "role_grants",
    ],
)
def test_system_tables_reveal_no_other_organisation(site, admin, client, table: str) -> None:
    """They are refused or show only the organisation's own rows."""
    other_database = tenant_endpoint(admin, site.other).database
    try:
        rows = str(client.query(f"SELECT * FROM system.{table}").result_rows)
    except DatabaseError as error:
        assert re.search("ACCESS_DENIED|UNKNOWN_TABLE", str(error))  # noqa: PT017  (either will do)
    else:
        assert other_database not in rows


@pytest.mark.parametrize("database", ["main", "we`ird", "quo'te", "back\\slash", "`; DROP DATABASE main; --"])
def test_user_statements_quote_any_database_name(node, site, database: str) -> None:
    """Each text is one statement about one name."""
    of = replace(node.endpoint, database=database)
    org_id, until = UUID(int=1), valid_until(1_800_000_000)
    role, tenant, worker = role_name(of, org_id), tenant_endpoint(of, org_id), worker_endpoint(of, org_id, 7)
    client = node.connect_admin()
    worker_statements = user_statements(worker, role, until)
    renewed, dropped = renew_statement(worker.user, until), drop_statement(worker.user)
    for text in (
        *role_statements(role, tenant.database),
        *user_statements(tenant, role),
        *worker_statements,
        renewed,
        dropped,
    ):
        [(shown,)] = client.query("SELECT formatQuerySingleLine({q:String})", {"q": text}).result_rows
        assert shown.split()[0] == text.split()[0]
        assert ("VALID UNTIL" in shown) == ("VALID UNTIL" in text)
    for name in (tenant.database, worker.user):
        assert client.query(f"SELECT 1 AS {quote_identifier(name)}").column_names == (name,)
    client.close()


def test_expiry_of_a_credential_is_read_in_utc(node) -> None:
    """Independent of the time zone of the server."""
    client = node.connect_admin()
    text = valid_until(1_800_000_000)
    query = "SELECT toUnixTimestamp(parseDateTimeBestEffort({t:String}, 'Asia/Tokyo'))"
    assert client.query(query, {"t": text}).result_rows == [(1_800_000_000 + VALID_SECONDS,)]
    client.close()
