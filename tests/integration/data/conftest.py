"""A fresh ClickHouse database per test, on the run's embedded server or the one AAICLICK_CLICKHOUSE_URL names."""

from __future__ import annotations

import uuid

import clickhouse_connect
import pytest

from aaiclick.data import DataContext
from aaiclick.settings import load_settings


@pytest.fixture(scope="session")
def clickhouse_server(aaiclick_stack):
    return load_settings().clickhouse or aaiclick_stack.lease.clickhouse()


@pytest.fixture(scope="session")
def admin(clickhouse_server):
    target = clickhouse_server
    client = clickhouse_connect.get_client(
        host=target.host, port=target.port, username=target.user, password=target.password, secure=target.secure,
        proxy_path=target.path, autogenerate_session_id=False,
    )  # fmt: skip
    yield client
    client.close()


@pytest.fixture
def clickhouse_target(clickhouse_server, admin):
    database = f"test_{uuid.uuid4().hex}"
    admin.command(f"CREATE DATABASE {database}")
    yield clickhouse_server.with_database(database)
    admin.command(f"DROP DATABASE {database} SYNC")


@pytest.fixture
async def data(clickhouse_target):
    async with DataContext(clickhouse_target) as context:
        yield context
