"""Fixtures: a new ClickHouse database per test, on the embedded server or the one in AAICLICK_CLICKHOUSE_URL."""

from __future__ import annotations

import uuid

import clickhouse_connect
import pytest

from aaiclick.data import DataContext
from aaiclick.settings import load_settings


@pytest.fixture(scope="session")
def clickhouse_server(aaiclick_stack):
    return load_settings().clickhouse or aaiclick_stack.connection.clickhouse_endpoint()


@pytest.fixture(scope="session")
def admin(clickhouse_server):
    endpoint = clickhouse_server
    client = clickhouse_connect.get_client(
        host=endpoint.host, port=endpoint.port, username=endpoint.user, password=endpoint.password,
        secure=endpoint.secure, proxy_path=endpoint.path, autogenerate_session_id=False,
    )  # fmt: skip
    yield client
    client.close()


@pytest.fixture
def clickhouse_endpoint(clickhouse_server, admin):
    database = f"test_{uuid.uuid4().hex}"
    admin.command(f"CREATE DATABASE {database}")
    yield clickhouse_server.with_database(database)
    admin.command(f"DROP DATABASE {database} SYNC")


@pytest.fixture
async def data(clickhouse_endpoint):
    async with DataContext(clickhouse_endpoint) as context:
        yield context
