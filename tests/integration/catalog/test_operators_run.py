"""Operators with state or network access, in real tasks."""

from __future__ import annotations

import asyncio
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from aaiclick import failpoints
from aaiclick.catalog.errors import DagError
from aaiclick.catalog.execution import dataset_tables, range_aggregator_operator
from aaiclick.data.io.bounded_reads import ReadLimits
from aaiclick.settings import get_settings
from tests.integration.catalog import dag_functions
from tests.integration.catalog.conftest import JOBS

SOURCE = "activation: source, operator: python, source: {kind: manual}, update_strategy: append"
RANGES = f"""
name: shop
jobs:
  - {{name: feed, {SOURCE}, unique_key: [position], outputs: [positions], config: {{function: "{JOBS}:positions"}}}}
  - name: whole
    activation: reactive
    operator: range_aggregator
    inputs: [positions]
    outputs: [ranges]
    update_strategy: append
    unique_key: [start]
    config: {{size: 10}}
  - name: pieces
    activation: reactive
    operator: range_splitter
    inputs: [ranges]
    outputs: [parts]
    config: {{size: 4}}
"""


async def test_aggregator_emits_ranges_once_and_stores_state(shop):
    await shop.deploy(RANGES)
    failpoints.arm_faults("end.before=error,end.after=error@2", None)
    try:
        await shop.run(*range(3, 12))
        assert await shop.rows("shop.ranges") is None
        await shop.run(0, 1, 2, 25)
        assert await shop.rows("shop.ranges") == [(0, 9)]
        # A new version with the same definition keeps its state.
        await shop.deploy(RANGES.replace("size: 4", "size: 4, start: 0") + "description: More words.\n")
        await shop.run(*range(11, 25))
    finally:
        failpoints.arm_faults("", None)
    assert await shop.rows("shop.ranges") == [(0, 9), (10, 19)]
    assert await shop.rows("shop.parts") == [(0, 3), (4, 7), (8, 9), (10, 11), (12, 15), (16, 19)]
    state = json.loads(await shop.db.fetchval("SELECT state FROM operator_state"))
    assert state == {"cursor": 20, "pending": [[20, 25]]}
    await shop.check()


async def test_too_many_ranges_are_refused(shop, monkeypatch):
    monkeypatch.setattr(range_aggregator_operator, "MAX_RANGES", 5)
    await shop.deploy(RANGES.replace("operator: range_aggregator", "operator: range_aggregator\n    max_attempts: 1"))
    await shop.run(*range(100, 105))
    assert await shop.finish(await shop.fire({"rows": [105]})) == "FAILED"
    assert "has more than 5 ranges" in " ".join(await shop.errors())


async def test_names_of_partitions_have_a_limit_of_bytes(shop, monkeypatch):
    monkeypatch.setattr(dataset_tables, "PARTITIONS_READ", ReadLimits(rows=10_001, bytes=10))
    await shop.deploy(RANGES.replace("name: feed,", "name: feed, max_attempts: 1,"))
    assert await shop.finish(await shop.fire({"rows": [1]})) == "FAILED"
    assert "is larger than 10 bytes" in " ".join(await shop.errors())


FOLLOW = f"""
name: shop
jobs:
  - name: follow
    activation: source
    operator: block_follower
    source: {{kind: manual}}
    outputs: [blocks]
    update_strategy: append
    unique_key: [number]
    config: {{tip: "{JOBS}:tip", fetch: "{JOBS}:blocks", confirmations: 2, batch_size: 4}}
"""


async def test_follower_refetches_rewritten_history(shop):
    dag_functions.CHAIN = {number: f"a{number}" for number in range(12)}
    await shop.deploy(FOLLOW)
    await shop.run()
    assert await shop.rows("shop.blocks") == [(number, f"a{number}") for number in range(10)]
    dag_functions.CHAIN = {number: f"{'a' if number < 6 else 'b'}{number}" for number in range(15)}
    await shop.run()
    assert await shop.rows("shop.blocks") == [(number, dag_functions.CHAIN[number]) for number in range(13)]
    assert await shop.tasks(await shop.run()) == [("follow",)]


ALERT = f"""
name: shop
jobs:
  - {{name: feed, {SOURCE}, unique_key: [id], outputs: [readings], config: {{function: "{JOBS}:fetch"}}}}
  - name: watch
    activation: reactive
    operator: alert_evaluate
    inputs: [readings]
    outputs: [alerts]
    config: {{value: amount, key: [day], condition: {{comparison: ">", threshold: 10, for_evaluations: 2}}}}
"""


async def test_alert_is_raised_and_cleared(shop):
    await shop.deploy(ALERT)
    row = {"id": 1, "day": "mon", "amount": 11}
    await shop.run(row)
    assert await shop.rows("shop.alerts") is None
    await shop.run(row)
    ((day, change, value, *_),) = await shop.rows("shop.alerts")
    assert (day, change, value) == ("mon", "raised", 11)
    (incident,) = await shop.db.fetch("SELECT rule, title, cause, closed_at, severity FROM incidents")
    assert (incident["rule"], incident["title"]) == ("alert_raised", "Alert shop.watch was raised")
    assert "mon" in incident["cause"]  # data: in the cause, not in the title
    assert (incident["severity"], incident["closed_at"]) == ("warning", None)
    await shop.run(row | {"amount": 1})
    assert [alert[1] for alert in await shop.rows("shop.alerts")] == ["cleared"]
    assert await shop.db.fetchval("SELECT closed_by FROM incidents") == "recovery"


async def test_infinite_value_raises_alert(shop):
    """State is JSON, which has no infinity."""
    ratios = """
  - name: divide
    activation: reactive
    operator: sql
    inputs: [readings]
    outputs: [ratios]
    config: {query: "SELECT day, amount / 0 AS amount FROM readings"}
"""
    text = ALERT.replace("  - name: watch", ratios.strip("\n") + "\n  - name: watch").replace(
        "inputs: [readings]\n    outputs: [alerts]", "inputs: [ratios]\n    outputs: [alerts]"
    )
    await shop.deploy(text.replace("for_evaluations: 2", "for_evaluations: 1"))
    for _ in range(2):  # the second run reads the state of the first
        await shop.run({"id": 1, "day": "mon", "amount": 11})
        (row,) = await shop.rows("shop.alerts")
        assert {"mon", "raised", float("inf")} <= {*row}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        moved = self.path.startswith("/moved")
        body = json.dumps({"data": {"items": [{"who": self.headers["X-Key"], "path": self.path}]}}).encode()
        self.send_response(302 if moved else 200)
        if moved:
            self.send_header("Location", "/there?q=1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """No access log."""


@pytest.fixture
def web():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def fetching(url):
    return f"""
name: shop
jobs:
  - name: fetch
    activation: source
    operator: http_fetch
    source: {{kind: manual}}
    outputs: [records]
    max_attempts: 1
    secrets: [key]
    config:
      url: "{url}/moved"
      records: data.items
      headers: {{X-Key: {{secret: key}}}}
"""


@pytest.fixture
def allow(monkeypatch):
    def allow(hosts):
        monkeypatch.setenv("AAICLICK_PRIVATE_HOSTS", hosts)
        get_settings.cache_clear()

    yield allow
    monkeypatch.undo()
    get_settings.cache_clear()


async def test_http_fetch_sends_secret_to_allowed_private_host(shop, web, allow):
    await shop.grant("key", "sesame")
    allow("10.0.0.0/8, 127.0.0.1")
    await shop.deploy(fetching(web))
    await shop.run()
    assert await shop.rows("shop.records") == [("sesame", "/there?q=1")]
    stored = await shop.db.fetch("SELECT yaml FROM dag_versions UNION ALL SELECT spec::text FROM job_definitions")
    assert not any("sesame" in row[0] for row in stored)
    allow("10.0.0.0/8")
    assert await asyncio.wait_for(shop.finish(await shop.fire()), 60) == "FAILED"
    (error,) = await shop.errors()
    assert "not a public address" in error
    assert "AAICLICK_PRIVATE_HOSTS" in error


async def test_dag_cannot_allow_private_hosts(shop, web):
    with pytest.raises(DagError, match="allow_private"):
        await shop.deploy(fetching(web) + "      allow_private: true\n")
