"""A cluster of two embedded nodes for all tests of it, and a database on both of them for each test."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from aaiclick.data import DataContext, cluster
from tests.integration.cluster.nodes import CLUSTER, make_pair

RANGE_ROWS = 4
"""Small enough that the Objects of tests lie on both nodes."""


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
    clients = [node.admin() for node in pair]
    yield clients
    for client in clients:
        client.close()


@pytest.fixture
def clickhouse_target(pair, admins):
    database = f"test_{uuid.uuid4().hex}"
    for admin in admins:
        admin.command(f"CREATE DATABASE {database}")
    first, second = (node.target.with_database(database) for node in pair)
    yield replace(first, cluster=CLUSTER, others=(second,))
    for admin in admins:
        admin.command(f"DROP DATABASE {database} SYNC")


@pytest.fixture
def aaiclick_clickhouse(clickhouse_target):
    """In the place of the single server of `aaiclick_env`."""
    return clickhouse_target


@pytest.fixture
def small_ranges(monkeypatch):
    monkeypatch.setattr(cluster, "RANGE_ROWS", RANGE_ROWS)


@pytest.fixture
async def data(clickhouse_target, small_ranges):
    async with DataContext(clickhouse_target) as context:
        yield context


@pytest.fixture
def tables(admins, clickhouse_target):
    """The tables of the test's database on each node."""
    text = f"SELECT name FROM system.tables WHERE database = '{clickhouse_target.database}' ORDER BY name"

    def look() -> list[list[str]]:
        return [[row[0] for row in admin.query(text).result_rows] for admin in admins]

    return look
