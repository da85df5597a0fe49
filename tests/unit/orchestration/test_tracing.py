"""Traces: a job is one, made of ids alone; nothing of OpenTelemetry is loaded unless it is asked for."""

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
from aaiclick.orchestration.tracing.spans import Tracing, trace_id_of
from aaiclick.settings import get_settings
from aaiclick.store.leases import Claim, Lease

ORG = uuid4()


def claim(task_id: int, job_id: int | None, attempt: int = 1) -> Claim:
    return Claim(Lease(task_id, attempt, uuid4()), ORG, job_id, None, "app.load", None, "{}", None, 0, None)


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def traces(exporter):
    made = Tracing(exporter)
    yield made
    made.close()


def spans(traces, exporter):
    traces.flush()
    return {f"{span.name} {(span.attributes or {}).get('aaiclick.attempt', '')}".strip(): span
            for span in exporter.get_finished_spans()}  # fmt: skip


def test_a_job_is_one_trace_whoever_runs_its_attempts(traces, exporter) -> None:
    """Two processes that share nothing but ids."""
    elsewhere = Tracing(exporter)
    traces.submitted(7, ORG, "nightly", 2)
    traces.ended(claim(8, 7), datetime.now(UTC), "FAILED", "ValueError:1")
    elsewhere.ended(claim(8, 7, 2), datetime.now(UTC), "COMPLETED")
    elsewhere.flush()
    found = spans(traces, exporter)
    root, first, second = found["submit nightly"], found["app.load 1"], found["app.load 2"]
    assert root.parent is None
    assert {span.context.trace_id for span in found.values()} == {trace_id_of(7)}
    assert first.parent.span_id == second.parent.span_id == root.context.span_id
    assert first.context.span_id != second.context.span_id
    assert first.status.status_code is StatusCode.ERROR
    assert first.attributes["error.type"] == "ValueError:1"
    assert dict(second.attributes) == {
        "aaiclick.job.id": "7", "aaiclick.task.id": "8", "aaiclick.task.type": "app.load",
        "aaiclick.org.id": str(ORG), "aaiclick.attempt": 2, "aaiclick.status": "COMPLETED",
    }  # fmt: skip


def test_jobs_and_queue_items_have_traces_of_their_own(traces, exporter) -> None:
    traces.ended(claim(8, None), datetime.now(UTC), "COMPLETED")
    [item] = spans(traces, exporter).values()
    assert item.parent is None
    assert item.context.trace_id == trace_id_of(claim(8, None, 2))
    assert len({trace_id_of(7), trace_id_of(8), trace_id_of(claim(8, None)), trace_id_of(claim(7, None))}) == 4


def test_a_tasks_own_spans_lie_below_its_attempt(traces, exporter) -> None:
    tracer = traces._provider.get_tracer("a task's")

    def task() -> None:
        traces.began(claim(8, 7))
        with tracer.start_as_current_span("inner"):
            pass

    copy_context().run(task)
    traces.ended(claim(8, 7), datetime.now(UTC), "COMPLETED")
    found = spans(traces, exporter)
    assert found["inner"].parent.span_id == found["app.load 1"].context.span_id
    assert found["inner"].context.trace_id == trace_id_of(7)


def test_a_request_lies_in_its_callers_trace_and_what_it_submits_is_linked(traces, exporter) -> None:
    caller = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with traces.request("POST", {b"traceparent": caller}) as span:
        traces.submitted(7, ORG, "nightly")
        traces.describe(span, "/v1/jobs", "POST", 201, str(ORG))
    found = spans(traces, exporter)
    request, job = found["POST /v1/jobs"], found["submit nightly"]
    assert f"{request.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert [link.context.span_id for link in job.links] == [request.context.span_id]
    assert job.parent is None


def test_everybody_agrees_on_what_is_sampled(monkeypatch, exporter) -> None:
    """Half of the traces, whole ones: the decision follows from the id."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    one, other = Tracing(exporter), Tracing(exporter)
    for job_id in range(1, 101):
        one.submitted(job_id, ORG, "j")
        other.ended(claim(1000 + job_id, job_id), datetime.now(UTC), "COMPLETED")
    one.flush()
    other.flush()
    found = [span.attributes["aaiclick.job.id"] for span in exporter.get_finished_spans()]
    assert 20 < len(set(found)) < 80
    assert all(found.count(job_id) == 2 for job_id in found)


@pytest.fixture
def asked(monkeypatch):
    """What `get_tracing` says with these variables."""
    for name in ("AAICLICK_OTEL", *tracing.ENDPOINTS):
        monkeypatch.delenv(name, raising=False)

    def ask(**variables: str):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        get_settings.cache_clear()
        tracing.get_tracing.cache_clear()
        return tracing.get_tracing()

    yield ask
    get_settings.cache_clear()
    tracing.get_tracing.cache_clear()


def test_traces_are_made_only_when_asked_for(asked) -> None:
    assert asked() is None
    made = asked(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    assert made is not None
    made.close()
    assert asked(AAICLICK_OTEL="0") is None


def test_what_is_not_installed_is_told_of(asked, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "aaiclick.orchestration.tracing.spans", None)
    assert asked(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1") is None
    with pytest.raises(SettingsError, match="aaiclick\\[otel\\]"):
        asked(AAICLICK_OTEL="1")


def test_opentelemetry_is_not_loaded_unless_asked_for() -> None:
    """Neither by a worker process nor by a server: the SDK is an extra."""
    code = (
        "import sys, aaiclick.orchestration.worker.main, aaiclick.server.app\n"
        "from aaiclick.orchestration.worker.witness import find_witness\n"
        "assert find_witness() is None\n"
        "sys.exit(any(name.startswith('opentelemetry.sdk') or 'otlp' in name for name in sys.modules))"
    )
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("AAICLICK_", "OTEL_"))}
    assert subprocess.run([sys.executable, "-c", code], env=bare, check=False).returncode == 0
