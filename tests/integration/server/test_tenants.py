"""The users of organisations and their workers on a real ClickHouse: what their grants let them do, and what not.

The ClickHouse of the wheel keeps users in a file and makes none by SQL. So a clerk stands before it who takes the
statements, and writes the users that they make into the file with exactly their grants; everything else is as it is.
That the statements themselves are understood, the parser of ClickHouse says.
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

from aaiclick.orchestration.credentials import (
    VALID_SECONDS,
    drop_statement,
    renew_statement,
    valid_until,
    worker_target,
)
from aaiclick.orchestration.tenants import quoted, role_of, role_statements, tenant_target, user_statements
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.store.workers import Standing, standing
from aaiclick.targets import ClickHouseTarget
from tests.integration.cluster.nodes import CLUSTER, Node, _free_ports
from tests.integration.server.clerk import Clerk
from tests.integration.server.conftest import Site, _populate, environment_for, start_server, with_connection
from tests.integration.server.hand import Hand, enqueue

NOBODY = 4711
"""A worker of which PostgreSQL knows nothing, but ClickHouse has a user."""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    http, tcp = _free_ports(2)
    made = Node(tmp_path_factory.mktemp("tenants") / "node", http, tcp)
    made.configure([tcp])
    made.start()
    yield made
    made.kill()


@pytest.fixture(scope="module")
def clerk(node):
    made = Clerk(node)
    yield made
    made.close()


@pytest.fixture(scope="module")
def admin(node, clerk) -> ClickHouseTarget:
    """As whom the server speaks to ClickHouse."""
    return replace(node.target, port=clerk.port)


@pytest.fixture(scope="module")
def site(aaiclick_stack, _aaiclick_template, admin, tmp_path_factory):
    """A server whose ClickHouse makes users."""
    database = aaiclick_stack.run(aaiclick_stack.take_database())
    target = aaiclick_stack.lease.postgres().with_database(database)
    ours, other, keys = asyncio.run(with_connection(target, _populate))
    directory = tmp_path_factory.mktemp("server")
    environment = environment_for(target, admin.url, directory)
    server = start_server(environment, directory / "server.log")
    found = Site(server, target, directory, environment, ours, other, keys)
    yield found
    for client in found.clients.values():
        client.close()
    assert server.stop() == 0
    aaiclick_stack.run(aaiclick_stack.leave_database(database))


def claim(site, prefix: str = "") -> tuple[Hand, ClickHouseTarget]:
    """A worker, and what it is given with its claim."""
    hand = Hand(site, f"{prefix}worker")
    enqueue(site, "data", f"{prefix}writer")
    answer = hand.say("/v1/task/claim", worker_id=hand.id, queues=["data"]).json()
    assert answer["no_clickhouse"] is None
    fetched = hand.say("/internal/task-fetch", lease=answer["tasks"][0]["lease"]).json()
    assert fetched["clickhouse"] == answer["clickhouse"]
    return hand, ClickHouseTarget.of(answer["clickhouse"])


@pytest.fixture(scope="module")
def given(site, node, clerk, admin) -> dict[str, ClickHouseTarget]:
    """What workers of ours, of another organisation and of the operator are given; ClickHouse knows them."""
    found = {prefix: claim(site, prefix)[1] for prefix in ("", "other-", "operator-")}
    clerk.said += user_statements(worker_target(admin, site.org, NOBODY), role_of(admin, site.org))
    clerk.write_down()
    node.kill()
    node.start()
    client = node.admin()
    for org_id in (site.org, site.other, DEFAULT_ORG_ID):
        database = tenant_target(admin, org_id).database
        client.command(f"CREATE TABLE `{database}`.secret (x UInt8) ENGINE = MergeTree ORDER BY x")
        client.command(f"INSERT INTO `{database}`.secret VALUES (7)")
    client.close()
    return found


@pytest.fixture
def client(node, given):
    made = connect(node, given[""])
    yield made
    made.close()


def connect(node: Node, target: ClickHouseTarget):
    """To ClickHouse itself, which knows no clerk."""
    return clickhouse_connect.get_client(
        host=target.host, port=node.http, username=target.user, password=target.password, database=target.database
    )


def test_a_worker_is_given_a_user_of_its_own_and_never_that_of_its_organisation(site, admin, clerk, given) -> None:
    orgs = {"": site.org, "other-": site.other, "operator-": DEFAULT_ORG_ID}
    for prefix, target in given.items():
        worker_id = int(target.user.rpartition("_")[2])
        assert target == worker_target(admin, orgs[prefix], worker_id)
        made = [text for text in clerk.said if f"`{target.user}`" in text]
        kinds = [text.split()[0] for text in made]
        assert kinds == ["CREATE", "ALTER", "GRANT"] * (len(kinds) // 3)  # again if a pass of the server renews it
        assert kinds
        assert all("VALID UNTIL" in text for text in made[:2])
    secrets = [tenant_target(admin, org_id).password for org_id in orgs.values()]
    assert not any(secret in str(target.password) for secret in secrets for target in given.values())


def test_a_worker_that_ends_has_its_user_no_more(site, clerk) -> None:
    hand, target = claim(site)
    assert hand.say("/v1/worker/settle", worker_id=hand.id, culprits=[]).status_code == 204
    clerk.wait_until(lambda said: drop_statement(target.user) in said)


def test_another_server_gives_the_same_renews_what_is_in_use_and_drops_what_is_not(
    site, clerk, admin, given, tmp_path
) -> None:
    mine, theirs = given[""], given["other-"]
    enqueue(site, "again")
    clerk.said.clear()
    server = start_server(site.environment, tmp_path / "second.log")
    key = {"Authorization": f"Bearer {site.keys['worker']}"}
    body = {"worker_id": mine.user.rpartition("_")[2], "queues": ["again"]}
    answer = httpx.post(f"{server.url}/v1/task/claim", json=body, headers=key, timeout=30).json()
    assert ClickHouseTarget.of(answer["clickhouse"]) == mine
    renewed = f"ALTER USER `{theirs.user}` VALID UNTIL "
    dropped = drop_statement(worker_target(admin, site.org, NOBODY).user)
    clerk.wait_until(lambda said: dropped in said and any(text.startswith(renewed) for text in said))
    assert [text for text in clerk.said if text.startswith("DROP")] == [dropped]
    assert server.stop() == 0


def test_workers_are_heard_of_or_silent_or_have_ended(site) -> None:
    heard, silent, stopped, ended = (int(Hand(site, "worker").id) for _ in range(4))
    site.sql("UPDATE workers SET last_heartbeat = now() - interval '100 s' WHERE id = $1", silent)
    for worker_id, seconds in ((stopped, 10), (ended, 100)):
        moment = f"now() - interval '{seconds} s'"
        site.sql(f"UPDATE workers SET status = 'STOPPED', stopped_at = {moment} WHERE id = $1", worker_id)
    ids = (heard, silent, stopped, ended, NOBODY)
    asked = [*((site.org, worker_id) for worker_id in ids), (site.other, heard)]
    found = site.run(lambda connection: standing(connection, asked, heard_seconds=50, ended_seconds=50))
    says = [Standing.HEARD_OF, Standing.SILENT, Standing.SILENT, *[Standing.ENDED] * 3]
    assert found == dict(zip(asked, says, strict=True))


def test_who_holds_the_lease_of_anothers_worker_is_not_given_its_user(site) -> None:
    """A worker beside the databases has no user, and its lease opens none."""
    [shared] = site.sql("INSERT INTO workers (id, hostname, pid, pool_size) VALUES (77, 'beside', 1, 1) RETURNING id")
    hand = Hand(site, "worker")
    enqueue(site, "shared")
    [task] = hand.claim(queues=["shared"])
    site.sql("UPDATE tasks SET worker_id = $2 WHERE id = $1", int(task["lease"]["task_id"]), shared["id"])
    answer = hand.say("/internal/task-fetch", lease=task["lease"])
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_its_own_database_is_all_that_it_reads_and_writes(site, node, admin, given, client) -> None:
    for engine in ("Memory", "StripeLog", "TinyLog", "ReplacingMergeTree ORDER BY x", "MergeTree ORDER BY x"):
        client.command(f"CREATE OR REPLACE TABLE mine (x UInt64) ENGINE = {engine}")
    client.command("INSERT INTO mine SELECT number FROM numbers(3)")
    assert client.query("SELECT sum(x) FROM mine").result_rows == [(3,)]
    assert client.query("SELECT x FROM secret").result_rows == [(7,)]
    client.command("DROP TABLE mine")
    theirs = tenant_target(admin, site.other).database
    for refused in (
        f"SELECT * FROM `{theirs}`.secret",
        f"INSERT INTO `{theirs}`.secret VALUES (1)",
        f"DROP TABLE `{theirs}`.secret",
        f"CREATE TABLE `{theirs}`.more (x UInt8) ENGINE = Memory",
        f"CREATE VIEW spy AS SELECT * FROM `{theirs}`.secret",
        f"SELECT * FROM merge('{theirs}', 'secret')",
        f"SELECT * FROM remote('127.0.0.1:{node.tcp}', '{theirs}', 'secret', '{node.target.user}', 'x')",
        "SELECT * FROM file('/etc/passwd', 'LineAsString')",
        f"SELECT * FROM url('http://127.0.0.1:{node.http}/', 'LineAsString')",
        "CREATE TABLE door (x String) ENGINE = File(CSV)",
        f"CREATE TABLE door (x String) ENGINE = URL('http://127.0.0.1:{node.http}/', CSV)",
        f"CREATE TABLE door (x UInt8) ENGINE = Distributed('{CLUSTER}', '{theirs}', 'secret')",
        f"SELECT * FROM cluster('{CLUSTER}', '{theirs}', 'secret')",
        "CREATE DATABASE another",
        "CREATE USER another",
        f"GRANT ALL ON *.* TO `{given[''].user}`",
        renew_statement(given[""].user, "infinity"),
        "SYSTEM SHUTDOWN",
    ):
        with pytest.raises(DatabaseError, match=r"ACCESS_DENIED|UNKNOWN_DATABASE|CANNOT_EXTRACT_TABLE"):
            client.query(refused)


def test_the_operators_workers_are_confined_as_well(site, node, admin, given) -> None:
    client = connect(node, given["operator-"])
    assert client.query("SELECT x FROM secret").result_rows == [(7,)]
    for refused in (f"SELECT * FROM `{tenant_target(admin, site.org).database}`.secret", "CREATE USER another"):
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
def test_system_tables_tell_nothing_of_another(site, admin, client, table: str) -> None:
    """They are refused, or have what is its own."""
    theirs = tenant_target(admin, site.other).database
    try:
        said = str(client.query(f"SELECT * FROM system.{table}").result_rows)
    except DatabaseError as error:
        assert re.search("ACCESS_DENIED|UNKNOWN_TABLE", str(error))  # noqa: PT017  (either will do)
    else:
        assert theirs not in said


@pytest.mark.parametrize("database", ["main", "we`ird", "quo'te", "back\\slash", "`; DROP DATABASE main; --"])
def test_statements_are_understood_whatever_the_database_is_called(node, site, database: str) -> None:
    """One statement each, about one name."""
    of = replace(node.target, database=database)
    org_id, until = UUID(int=1), valid_until(1_800_000_000)
    role, tenant, worker = role_of(of, org_id), tenant_target(of, org_id), worker_target(of, org_id, 7)
    client = node.admin()
    made = user_statements(worker, role, until)
    renewed, dropped = renew_statement(worker.user, until), drop_statement(worker.user)
    for text in (*role_statements(role, tenant.database), *user_statements(tenant, role), *made, renewed, dropped):
        [(shown,)] = client.query("SELECT formatQuerySingleLine({q:String})", {"q": text}).result_rows
        assert shown.split()[0] == text.split()[0]
        assert ("VALID UNTIL" in shown) == ("VALID UNTIL" in text)
    for name in (tenant.database, worker.user):
        assert client.query(f"SELECT 1 AS {quoted(name)}").column_names == (name,)
    client.close()


def test_the_end_of_a_credential_is_read_as_it_is_meant(node) -> None:
    """In whatever time zone the server lives."""
    client = node.admin()
    text = valid_until(1_800_000_000)
    asked = "SELECT toUnixTimestamp(parseDateTimeBestEffort({t:String}, 'Asia/Tokyo'))"
    assert client.query(asked, {"t": text}).result_rows == [(1_800_000_000 + VALID_SECONDS,)]
    client.close()
