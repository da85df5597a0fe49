"""The users of organisations on a real ClickHouse: what their grants let them do, and what not.

The ClickHouse of the wheel keeps users in a file and makes none by SQL. So they are written into its file here, with
exactly the grants that `user_statements` gives; everything from there on is as it is: the server finds the user of its
organisation and hands the credential to the worker that claims. That the statements themselves are understood, the
parser of ClickHouse says.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import replace
from uuid import UUID

import clickhouse_connect
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from aaiclick.orchestration.tenants import tenant_target, user_statements
from aaiclick.settings import ClickHouseTarget
from tests.integration.cluster.nodes import Node, _free_ports
from tests.integration.server.conftest import Site, _populate, environment_for, start_server, with_connection
from tests.integration.server.hand import Hand, enqueue

USER = """<{name}><password_sha256_hex>{digest}</password_sha256_hex><networks><ip>127.0.0.1</ip></networks>
  <profile>default</profile><quota>default</quota><grants>{grants}</grants></{name}>"""


def written(tenant: ClickHouseTarget) -> str:
    """A user of a file as the statements make it."""
    grants = [text.partition(" TO ")[0] for text in user_statements(tenant) if text.startswith("GRANT")]
    plain = [re.sub(r"CURRENT GRANTS \((.*)\)", r"\1", text) for text in grants]
    queries = "".join(f"<query>{text}</query>" for text in plain)
    return USER.format(name=tenant.user, digest=hashlib.sha256(tenant.password.encode()).hexdigest(), grants=queries)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    http, tcp = _free_ports(2)
    made = Node(tmp_path_factory.mktemp("tenants") / "node", http, tcp)
    made.configure([tcp])
    yield made
    made.kill()


@pytest.fixture(scope="module")
def site(aaiclick_stack, _aaiclick_template, node, tmp_path_factory):
    """A server whose ClickHouse has a user for each organisation."""
    database = aaiclick_stack.run(aaiclick_stack.take_database())
    target = aaiclick_stack.lease.postgres().with_database(database)
    ours, other, keys = asyncio.run(with_connection(target, _populate))
    users = node.directory / "users.xml"
    tenants = [tenant_target(node.target, org) for org in (ours, other)]
    users.write_text(users.read_text().replace("</users>", "".join(map(written, tenants)) + "</users>"))
    node.start()
    admin = node.admin()
    for tenant in tenants:
        admin.command(f"CREATE DATABASE `{tenant.database}`")
        admin.command(f"CREATE TABLE `{tenant.database}`.secret (x UInt8) ENGINE = MergeTree ORDER BY x")
        admin.command(f"INSERT INTO `{tenant.database}`.secret VALUES (7)")
    admin.close()
    directory = tmp_path_factory.mktemp("server")
    environment = environment_for(target, node.target.url, directory)
    server = start_server(environment, directory / "server.log")
    found = Site(server, target, directory, environment, ours, other, keys)
    yield found
    for client in found.clients.values():
        client.close()
    assert server.stop() == 0
    aaiclick_stack.run(aaiclick_stack.leave_database(database))


def credential(site, prefix: str = "") -> ClickHouseTarget:
    """What a worker is given with its claim."""
    hand = Hand(site, f"{prefix}worker")
    enqueue(site, "data", f"{prefix}writer")
    answer = hand.say("/v1/task/claim", worker_id=hand.id, queues=["data"]).json()
    assert answer["no_clickhouse"] is None
    return ClickHouseTarget.of(answer["clickhouse"])


@pytest.fixture
def client(site):
    given = credential(site)
    made = clickhouse_connect.get_client(
        host=given.host, port=given.port, username=given.user, password=given.password, database=given.database
    )
    yield made
    made.close()


def test_a_worker_is_given_the_user_of_its_organisation_and_nobody_elses(site, node) -> None:
    mine, theirs = credential(site), credential(site, "other-")
    assert (mine, theirs) == (tenant_target(node.target, site.org), tenant_target(node.target, site.other))
    assert node.target.password not in str([mine.password, theirs.password])
    assert credential(site, "operator-").user == node.target.user  # that organisation is the operator's


def test_its_own_database_is_all_that_it_reads_and_writes(site, node, client) -> None:
    for engine in ("Memory", "StripeLog", "TinyLog", "ReplacingMergeTree ORDER BY x", "MergeTree ORDER BY x"):
        client.command(f"CREATE OR REPLACE TABLE mine (x UInt64) ENGINE = {engine}")
    client.command("INSERT INTO mine SELECT number FROM numbers(3)")
    assert client.query("SELECT sum(x) FROM mine").result_rows == [(3,)]
    assert client.query("SELECT x FROM secret").result_rows == [(7,)]
    client.command("DROP TABLE mine")
    theirs = tenant_target(node.target, site.other).database
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
        "CREATE DATABASE another",
        "CREATE USER another",
        f"GRANT ALL ON *.* TO `{tenant_target(node.target, site.org).user}`",
        "SYSTEM SHUTDOWN",
    ):
        with pytest.raises(DatabaseError, match=r"ACCESS_DENIED|UNKNOWN_DATABASE|CANNOT_EXTRACT_TABLE"):
            client.query(refused)


@pytest.mark.parametrize(
    "table",
    ["tables", "databases", "columns", "parts", "processes", "users", "grants", "query_log", "settings_profiles"],
)
def test_system_tables_tell_nothing_of_another(site, node, client, table: str) -> None:
    """They are refused, or have what is its own."""
    theirs = tenant_target(node.target, site.other).database
    try:
        said = str(client.query(f"SELECT * FROM system.{table}").result_rows)
    except DatabaseError as error:
        assert re.search("ACCESS_DENIED|UNKNOWN_TABLE", str(error))  # noqa: PT017  (either will do)
    else:
        assert theirs not in said


@pytest.mark.parametrize("database", ["main", "we`ird", "quo'te", "back\\slash", "`; DROP DATABASE main; --"])
def test_statements_are_understood_whatever_the_database_is_called(node, site, database: str) -> None:
    """One statement each, about one name."""
    tenant = tenant_target(replace(node.target, database=database), UUID(int=1))
    admin = node.admin()
    for text in user_statements(tenant):
        [(shown,)] = admin.query("SELECT formatQuerySingleLine({q:String})", {"q": text}).result_rows
        assert shown.split()[0] == text.split()[0]
    quoted = user_statements(tenant)[0].removeprefix("CREATE USER IF NOT EXISTS ")
    assert admin.query(f"SELECT 1 AS {quoted}").column_names == (tenant.database,)
    admin.close()
