"""Real worker processes, a collector that speaks OTLP: spans arrive, and every attempt has its line in the log."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from aaiclick.orchestration.tracing.spans import trace_id_of


@pytest.fixture
def collector():
    """Its address, and the spans that it was sent."""
    found = []

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            found.extend(span for each in sent.resource_spans for part in each.scope_spans for span in part.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taker)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", found
    server.shutdown()
    thread.join()
    server.server_close()


def facts(span) -> dict[str, object]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


async def test_every_attempt_is_a_span_and_a_line(bench, collector, transport) -> None:
    """Beside the others, or (over HTTP) in a process of its own."""
    from aaiclick.orchestration import OrchContext, create_job, create_task

    url, found = collector
    task = create_task("users_tasks.fail", max_attempts=2, retry_policy={"base_seconds": 0.01})
    async with OrchContext(target=bench.target):
        job = await create_job("nightly", task)
    item = await bench.enqueue("speak")
    worker = bench.start(
        "--isolation", "none" if transport == "direct" else "process", forked=False,
        OTEL_EXPORTER_OTLP_ENDPOINT=url, AAICLICK_LOG_FORMAT="json", NO_PROXY="127.0.0.1",
    )  # fmt: skip
    await bench.until(task.id, lambda row: row["completed_at"] is not None)
    await bench.until(item, lambda row: row["completed_at"] is not None)
    assert worker.stop() == 0

    seen = {
        (said["aaiclick.task.id"], said["aaiclick.attempt"]): (span, said) for span in found if (said := facts(span))
    }
    assert set(seen) == {(str(task.id), 1), (str(task.id), 2), (str(item), 1)}
    for attempt in (1, 2):
        span, said = seen[str(task.id), attempt]
        assert int.from_bytes(span.trace_id, "big") == trace_id_of(job.id)
        assert (said["aaiclick.status"], said["aaiclick.job.id"]) == ("FAILED", str(job.id))
        assert span.end_time_unix_nano >= span.start_time_unix_nano
    assert seen[str(item), 1][1]["aaiclick.status"] == "COMPLETED"

    lines = [json.loads(line) for line in worker.process.stderr if line.startswith("{")]
    ended = {(line["task"], line["attempt"]): line for line in lines if line["message"] == "attempt ended"}
    assert set(ended) == set(seen)
    assert ended[str(task.id), 2]["status"] == "FAILED"
    assert ended[str(task.id), 2]["error"].startswith("ValueError")
    assert ended[str(task.id), 2]["job"] == str(job.id)
    [said] = [line for line in lines if line["message"] == "to the log"]
    assert (said["task"], said["attempt"], said["job"]) == (str(item), 1, None)
