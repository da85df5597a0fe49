"""Fixtures: a cluster of two embedded ClickHouse nodes, and a database on both per test."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from aaiclick.data import DataContext
from aaiclick.data.runtime import cluster
from tests.integration.cluster.nodes import CLUSTER, make_pair

RANGE_ROWS = 4
"""Small enough that the Objects of tests have rows on both nodes."""


@pytest.fixture(scope="package")
def pair(tmp_path_factory):
    nodes = make_pair(tmp_path_factory.mktemp("cluster"))
    try:
        for node in nodes:
            node.start()
        yield nodes
    finally:
        for node in nodes:
            node.kill()


@pytest.fixture(scope="package")
def admins(pair):
    clients = [node.connect_admin() for node in pair]
    yield clients
    for client in clients:
        client.close()


@pytest.fixture
def clickhouse_endpoint(pair, admins):
    database = f"test_{uuid.uuid4().hex}"
    for admin in admins:
        admin.command(f"CREATE DATABASE {database}")
    first, second = (node.endpoint.with_database(database) for node in pair)
    yield replace(first, cluster=CLUSTER, others=(second,))
    for admin in admins:
        admin.command(f"DROP DATABASE {database} SYNC")


@pytest.fixture
def aaiclick_clickhouse(clickhouse_endpoint):
    """Replaces the single server of `aaiclick_env`."""
    return clickhouse_endpoint


@pytest.fixture
def small_ranges(monkeypatch):
    monkeypatch.setattr(cluster, "RANGE_ROWS", RANGE_ROWS)


@pytest.fixture
async def data(clickhouse_endpoint, small_ranges):
    async with DataContext(clickhouse_endpoint) as context:
        yield context


@pytest.fixture
def tables(admins, clickhouse_endpoint):
    """Function that lists the tables of the test's database on each node."""
    text = f"SELECT name FROM system.tables WHERE database = '{clickhouse_endpoint.database}' ORDER BY name"

    def list_tables() -> list[list[str]]:
        return [[row[0] for row in admin.query(text).result_rows] for admin in admins]

    return list_tables
