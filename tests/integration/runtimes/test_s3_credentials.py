"""S3 credentials must not appear in ClickHouse's process list, query log or errors."""

from __future__ import annotations

import asyncio
import socket

import pytest

from aaiclick.catalog.execution import parquet_storage
from aaiclick.data.runtime.clickhouse_client import connect
from aaiclick.errors import AaiclickError
from tests.integration.cluster import nodes
from tests.integration.moto_server import VARIABLES

LOG = "<query_log><database>system</database><table>query_log</table></query_log></clickhouse>"
CANARIES = ("canary-of-the-secret", "canary-of-the-token")


@pytest.fixture
async def client(tmp_path, monkeypatch):
    """A server with a query log, which the embedded one does not have."""
    monkeypatch.setattr(nodes, "CONFIG", nodes.CONFIG.replace("</clickhouse>", LOG))
    node, _ = nodes.make_pair(tmp_path / "logging")
    await asyncio.to_thread(node.start)
    yield await connect(node.endpoint)
    node.kill()


@pytest.fixture
def silence(monkeypatch):
    """An S3 server that never answers, so that queries stay in the process list."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "name-of-the-key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARIES[0])
        monkeypatch.setenv("AWS_SESSION_TOKEN", CANARIES[1])
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listening.getsockname()[1]}")
        yield


async def texts(client, question):
    rows = await client.read_text(question)
    return [text for row in rows.to_pylist() for text in row.values()]


async def test_s3_secrets_are_in_no_process_list_query_log_or_error(client, silence):
    columns = [("n", "UInt64")]
    source = parquet_storage.table_function("s3://lake/shop/", "1-2-3.parquet", columns)
    assert not any(canary in source for canary in CANARIES)
    errors = []
    for text in (f"SELECT n FROM {source}", f"INSERT INTO FUNCTION {source} SELECT number AS n FROM numbers(3)"):
        running = asyncio.create_task(client.run(text, query_id="looked-for"))
        while not (queries := await texts(client, "SELECT query FROM system.processes WHERE query_id = 'looked-for'")):
            assert not running.done()
        assert "[HIDDEN]" in queries[0]
        assert not any(canary in queries[0] for canary in CANARIES)
        assert await client.kill_query("looked-for")
        with pytest.raises(AaiclickError) as failed:
            await running
        errors.append(str(failed.value))
    for text in (f"SELECT missing FROM {source}", f"SELECT n FROM {source} WHEREE what is this"):
        with pytest.raises(AaiclickError) as refused:
            await client.read_text(text)
        errors.append(str(refused.value))
    await client.run("SYSTEM FLUSH LOGS")
    log_texts = await texts(client, "SELECT query || exception || formatted_query FROM system.query_log")
    assert (
        sum("name-of-the-key" in text for text in log_texts) >= 3
    )  # the credentials were used; the key id is not secret
    assert any("WHEREE" in text for text in log_texts)
    for text in (*log_texts, *errors):
        assert not any(canary in text for canary in CANARIES)
