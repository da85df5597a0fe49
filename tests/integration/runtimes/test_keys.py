"""Where the keys to S3 can be seen in ClickHouse: looked for in its process list, its query log and its errors."""

from __future__ import annotations

import asyncio
import socket

import pytest

from aaiclick.catalog.running import parquet
from aaiclick.data.client import connect
from aaiclick.errors import AaiclickError
from tests.integration.amazon import VARIABLES
from tests.integration.cluster import nodes

LOG = "<query_log><database>system</database><table>query_log</table></query_log></clickhouse>"
CANARIES = ("canary-of-the-secret", "canary-of-the-token")


@pytest.fixture
async def client(tmp_path, monkeypatch):
    """Of a server that keeps a query log, which the embedded one does not."""
    monkeypatch.setattr(nodes, "CONFIG", nodes.CONFIG.replace("</clickhouse>", LOG))
    node, _ = nodes.make_pair(tmp_path / "logging")
    await asyncio.to_thread(node.start)
    yield await connect(node.target)
    node.kill()


@pytest.fixture
def silence(monkeypatch):
    """S3 that takes connections and never answers: who asks stays in the process list."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "name-of-the-key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARIES[0])
        monkeypatch.setenv("AWS_SESSION_TOKEN", CANARIES[1])
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listening.getsockname()[1]}")
        yield


async def texts(client, question):
    found = await client.read_text(question)
    return [each for row in found.to_pylist() for each in row.values()]


async def test_the_secrets_of_s3_are_in_no_process_list_no_query_log_and_no_error(client, silence):
    columns = [("n", "UInt64")]
    source = parquet.function_of("s3://lake/shop/", "1-2-3.parquet", columns)
    assert not any(canary in source for canary in CANARIES)
    errors = []
    for text in (f"SELECT n FROM {source}", f"INSERT INTO FUNCTION {source} SELECT number AS n FROM numbers(3)"):
        running = asyncio.create_task(client.run(text, query_id="looked-for"))
        while not (seen := await texts(client, "SELECT query FROM system.processes WHERE query_id = 'looked-for'")):
            assert not running.done()
        assert "[HIDDEN]" in seen[0]
        assert not any(canary in seen[0] for canary in CANARIES)
        assert await client.kill("looked-for")
        with pytest.raises(AaiclickError) as failed:
            await running
        errors.append(str(failed.value))
    for text in (f"SELECT missing FROM {source}", f"SELECT n FROM {source} WHEREE what is this"):
        with pytest.raises(AaiclickError) as refused:
            await client.read_text(text)
        errors.append(str(refused.value))
    await client.run("SYSTEM FLUSH LOGS")
    kept = await texts(client, "SELECT query || exception || formatted_query FROM system.query_log")
    assert sum("name-of-the-key" in each for each in kept) >= 3  # sent and understood; the name of a key is no secret
    assert any("WHEREE" in each for each in kept)
    for said in (*kept, *errors):
        assert not any(canary in said for canary in CANARIES)
