"""Tracing: ids of traces and spans, sampling, and the optional import of OpenTelemetry."""

from __future__ import annotations

import os
import subprocess
import sys
from contextvars import copy_context
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from aaiclick.errors import SettingsError
from aaiclick.orchestration import tracing
from aaiclick.orchestration.tracing.spans import Tracing, trace_id_for
from aaiclick.settings import get_settings
from aaiclick.store.engine.leases_and_outcomes import Claim, Lease

ORG = uuid4()


def claim(task_id: int, job_id: int | None, attempt: int = 1) -> Claim:
    return Claim(Lease(task_id, attempt, uuid4()), ORG, job_id, None, "app.load", None, "{}", None, 0, None)


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def traces(exporter):
    tracing = Tracing(exporter)
    yield tracing
    tracing.close()


def spans(traces, exporter):
    traces.flush()
    return {f"{span.name} {(span.attributes or {}).get('aaiclick.attempt', '')}".strip(): span
            for span in exporter.get_finished_spans()}  # fmt: skip


def test_job_is_one_trace_across_processes(traces, exporter) -> None:
    """Trace ids are derived from job and task ids alone."""
    other_process = Tracing(exporter)
    traces.record_submission(7, ORG, "nightly", 2)
    traces.record_attempt(claim(8, 7), datetime.now(UTC), "FAILED", "ValueError:1")
    other_process.record_attempt(claim(8, 7, 2), datetime.now(UTC), "COMPLETED")
    other_process.flush()
    spans_by_name = spans(traces, exporter)
    root, first, second = spans_by_name["submit nightly"], spans_by_name["app.load 1"], spans_by_name["app.load 2"]
    assert root.parent is None
    assert {span.context.trace_id for span in spans_by_name.values()} == {trace_id_for(7)}
    assert first.parent.span_id == second.parent.span_id == root.context.span_id
    assert first.context.span_id != second.context.span_id
    assert first.status.status_code is StatusCode.ERROR
    assert first.attributes["error.type"] == "ValueError:1"
    assert dict(second.attributes) == {
        "aaiclick.job.id": "7", "aaiclick.task.id": "8", "aaiclick.task.type": "app.load",
        "aaiclick.org.id": str(ORG), "aaiclick.attempt": 2, "aaiclick.status": "COMPLETED",
    }  # fmt: skip


def test_jobs_and_queue_items_have_their_own_traces(traces, exporter) -> None:
    traces.record_attempt(claim(8, None), datetime.now(UTC), "COMPLETED")
    [item] = spans(traces, exporter).values()
    assert item.parent is None
    assert item.context.trace_id == trace_id_for(claim(8, None, 2))
    assert len({trace_id_for(7), trace_id_for(8), trace_id_for(claim(8, None)), trace_id_for(claim(7, None))}) == 4


def test_spans_of_a_task_are_children_of_its_attempt(traces, exporter) -> None:
    tracer = traces._provider.get_tracer("a task's")

    def task() -> None:
        traces.enter_attempt(claim(8, 7))
        with tracer.start_as_current_span("inner"):
            pass

    copy_context().run(task)
    traces.record_attempt(claim(8, 7), datetime.now(UTC), "COMPLETED")
    spans_by_name = spans(traces, exporter)
    assert spans_by_name["inner"].parent.span_id == spans_by_name["app.load 1"].context.span_id
    assert spans_by_name["inner"].context.trace_id == trace_id_for(7)


def test_request_joins_the_callers_trace_and_links_its_job(traces, exporter) -> None:
    caller = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with traces.request("POST", {b"traceparent": caller}) as span:
        traces.record_submission(7, ORG, "nightly")
        traces.describe(span, "/v1/jobs", "POST", 201, str(ORG))
    spans_by_name = spans(traces, exporter)
    request, job = spans_by_name["POST /v1/jobs"], spans_by_name["submit nightly"]
    assert f"{request.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert [link.context.span_id for link in job.links] == [request.context.span_id]
    assert job.parent is None


def test_all_processes_agree_on_sampling(monkeypatch, exporter) -> None:
    """The decision depends on the trace id, so that traces are complete."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    one, other = Tracing(exporter), Tracing(exporter)
    for job_id in range(1, 101):
        one.record_submission(job_id, ORG, "j")
        other.record_attempt(claim(1000 + job_id, job_id), datetime.now(UTC), "COMPLETED")
    one.flush()
    other.flush()
    job_ids = [span.attributes["aaiclick.job.id"] for span in exporter.get_finished_spans()]
    assert 20 < len(set(job_ids)) < 80
    assert all(job_ids.count(job_id) == 2 for job_id in job_ids)


@pytest.fixture
def load_tracing(monkeypatch):
    """Call `get_tracing` with environment variables."""
    for name in ("AAICLICK_OTEL", *tracing.ENDPOINTS):
        monkeypatch.delenv(name, raising=False)

    def load(**variables: str):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        get_settings.cache_clear()
        tracing.get_tracing.cache_clear()
        return tracing.get_tracing()

    yield load
    get_settings.cache_clear()
    tracing.get_tracing.cache_clear()


def test_traces_are_created_only_if_enabled(load_tracing) -> None:
    assert load_tracing() is None
    tracing = load_tracing(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    assert tracing is not None
    tracing.close()
    assert load_tracing(AAICLICK_OTEL="0") is None


def test_missing_opentelemetry_is_reported(load_tracing, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "aaiclick.orchestration.tracing.spans", None)
    assert load_tracing(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1") is None
    with pytest.raises(SettingsError, match="aaiclick\\[otel\\]"):
        load_tracing(AAICLICK_OTEL="1")


def test_opentelemetry_is_imported_only_if_enabled() -> None:
    """Neither by a worker process nor by a server: the SDK is an optional dependency."""
    code = (
        "import sys, aaiclick.orchestration.worker.main, aaiclick.server.app\n"
        "from aaiclick.orchestration.worker.attempt_telemetry import make_attempt_telemetry\n"
        "assert make_attempt_telemetry() is None\n"
        "sys.exit(any(name.startswith('opentelemetry.sdk') or 'otlp' in name for name in sys.modules))"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AAICLICK_", "OTEL_"))}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
