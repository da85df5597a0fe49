"""Tracing with a real worker and an OTLP collector, and JSON log lines of attempts."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from aaiclick.orchestration.tracing.spans import trace_id_for


@pytest.fixture
def collector():
    """Address of a collector, and the spans that it received."""
    spans = []

    class CollectorHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            spans.extend(
                span for resource in sent.resource_spans for part in resource.scope_spans for span in part.spans
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), CollectorHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", spans
    server.shutdown()
    thread.join()
    server.server_close()


def span_attributes(span) -> dict[str, object]:
    return {attribute.key: attribute.value.string_value or attribute.value.int_value for attribute in span.attributes}


async def test_every_attempt_has_a_span_and_a_log_line(worker_env, collector, gateway_kind) -> None:
    """Over HTTP with process isolation."""
    from aaiclick.orchestration import OrchContext, create_job, create_task

    url, spans = collector
    task = create_task("users_tasks.fail", max_attempts=2, retry_policy={"base_seconds": 0.01})
    async with OrchContext(endpoint=worker_env.endpoint):
        job = await create_job("nightly", task)
    item = await worker_env.enqueue("speak")
    worker = worker_env.start(
        "--isolation", "none" if gateway_kind == "direct" else "process", forked=False,
        OTEL_EXPORTER_OTLP_ENDPOINT=url, AAICLICK_LOG_FORMAT="json", NO_PROXY="127.0.0.1",
    )  # fmt: skip
    await worker_env.wait_until(task.id, lambda row: row["completed_at"] is not None)
    await worker_env.wait_until(item, lambda row: row["completed_at"] is not None)
    assert worker.stop() == 0

    attempts = {
        (attributes["aaiclick.task.id"], attributes["aaiclick.attempt"]): (span, attributes)
        for span in spans
        if (attributes := span_attributes(span))
    }
    assert set(attempts) == {(str(task.id), 1), (str(task.id), 2), (str(item), 1)}
    for attempt in (1, 2):
        span, attributes = attempts[str(task.id), attempt]
        assert int.from_bytes(span.trace_id, "big") == trace_id_for(job.id)
        assert (attributes["aaiclick.status"], attributes["aaiclick.job.id"]) == ("FAILED", str(job.id))
        assert span.end_time_unix_nano >= span.start_time_unix_nano
    assert attempts[str(item), 1][1]["aaiclick.status"] == "COMPLETED"

    lines = [json.loads(line) for line in worker.process.stderr if line.startswith("{")]
    ended = {(line["task"], line["attempt"]): line for line in lines if line["message"] == "attempt ended"}
    assert set(ended) == set(attempts)
    assert ended[str(task.id), 2]["status"] == "FAILED"
    assert ended[str(task.id), 2]["error"].startswith("ValueError")
    assert ended[str(task.id), 2]["job"] == str(job.id)
    [log_line] = [line for line in lines if line["message"] == "to the log"]
    assert (log_line["task"], log_line["attempt"], log_line["job"]) == (str(item), 1, None)
