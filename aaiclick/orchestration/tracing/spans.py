"""Spans of OpenTelemetry.

Trace and span ids of jobs, submissions and attempts are hashes of their own ids. So every process can compute them, and
no trace context is stored or transmitted. The trace of the submitting code, if any, is linked to the job's.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from hashlib import blake2b
from uuid import UUID

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aaiclick._version import __version__
from aaiclick.store.engine.leases_and_outcomes import Claim, Lease

CLOSE_SECONDS = 3.0
SERVER_ERROR = 500

_preset_ids: ContextVar[tuple[int, int] | None] = ContextVar("aaiclick_span_ids", default=None)


class _PresetIdGenerator(IdGenerator):
    """Returns the preset ids of the span that is being created, else random ids."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()

    def generate_trace_id(self) -> int:
        preset = _preset_ids.get()
        return preset[0] if preset else self._random.generate_trace_id()

    def generate_span_id(self) -> int:
        preset = _preset_ids.get()
        return preset[1] if preset else self._random.generate_span_id()


def trace_id_for(claim_or_job: Claim | int) -> int:
    """Trace id of a job, or of a queue item, which has its own trace."""
    if isinstance(claim_or_job, int):
        return _hash_id(f"job {claim_or_job}", 16)
    job_id = claim_or_job.job_id
    return _hash_id(f"task {claim_or_job.lease.task_id}" if job_id is None else f"job {job_id}", 16)


def _hash_id(text: str, length: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=length).digest(), "big") or 1


def _submission_id(job_id: int) -> int:
    return _hash_id(f"submission of {job_id}", 8)


def _attempt_id(lease: Lease) -> int:
    return _hash_id(f"attempt {lease.attempt} of {lease.task_id}", 8)


class Tracing:
    """Creates spans and exports them in the background."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
        environment_resource = Resource.create()  # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
        default_resource = Resource({SERVICE_NAME: "aaiclick", SERVICE_VERSION: __version__})
        is_unnamed = str(environment_resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service")
        self._provider = TracerProvider(
            resource=environment_resource.merge(default_resource)
            if is_unnamed
            else default_resource.merge(environment_resource),
            id_generator=_PresetIdGenerator(),
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("aaiclick", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def set_global_provider(self) -> None:
        """Export spans of the code of tasks as well; for worker processes."""
        trace.set_tracer_provider(self._provider)

    def record_submission(self, job_id: int, org_id: UUID, name: str, tasks: int | None = None) -> None:
        """Record the root span of a job's trace."""
        caller = trace.get_current_span().get_span_context()
        attributes = {"aaiclick.job.id": str(job_id), "aaiclick.job.name": name, "aaiclick.org.id": str(org_id)}
        if tasks is not None:
            attributes["aaiclick.job.tasks"] = str(tasks)
        with _use_ids(trace_id_for(job_id), _submission_id(job_id)):
            span = self._tracer.start_span(
                f"submit {name}",
                Context(),
                SpanKind.PRODUCER,
                attributes,
                links=[Link(caller)] if caller.is_valid else (),
            )
        span.end()

    def enter_attempt(self, claim: Claim) -> None:
        """Make the attempt the parent of spans that this context creates from now on."""
        span_context = SpanContext(trace_id_for(claim), _attempt_id(claim.lease), True, self._flags(claim))
        contexts.attach(trace.set_span_in_context(NonRecordingSpan(span_context), Context()))

    def record_attempt(self, claim: Claim, started_at: datetime, status: str, error: str | None = None) -> None:
        """Record the span of a finished attempt."""
        lease = claim.lease
        attributes: dict[str, str | int] = {
            "aaiclick.task.id": str(lease.task_id),
            "aaiclick.task.type": claim.type,
            "aaiclick.org.id": str(claim.org_id),
            "aaiclick.attempt": lease.attempt,
            "aaiclick.status": status,
        }
        parent = Context()
        if claim.job_id is not None:
            attributes["aaiclick.job.id"] = str(claim.job_id)
            submission = SpanContext(trace_id_for(claim), _submission_id(claim.job_id), True, self._flags(claim))
            parent = trace.set_span_in_context(NonRecordingSpan(submission), parent)
        with _use_ids(trace_id_for(claim), _attempt_id(lease)):
            span = self._tracer.start_span(
                claim.type, parent, SpanKind.CONSUMER, attributes, start_time=int(started_at.timestamp() * 1e9)
            )
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    @contextmanager
    def request(self, method: str, headers: Mapping[bytes, bytes]) -> Generator[Span]:
        """Span of an HTTP request, within the caller's trace if it sent one."""
        carrier = {name: headers[name.encode()].decode("latin-1") for name in _HEADERS if name.encode() in headers}
        parent = self._propagator.extract(carrier, Context())
        span = self._tracer.start_span(method, parent, SpanKind.SERVER, {"http.request.method": method})
        token = contexts.attach(trace.set_span_in_context(span, parent))
        try:
            yield span
        finally:
            contexts.detach(token)
            span.end()

    @staticmethod
    def describe(span: Span, route: str | None, method: str, status: int, org: str | None) -> None:
        """Set the attributes of a finished request: the route's template, and no path or query parameters."""
        span.update_name(f"{method} {route}" if route else method)
        span.set_attribute("http.response.status_code", status)
        if route:
            span.set_attribute("http.route", route)
        if org:
            span.set_attribute("aaiclick.org.id", org)
        if status >= SERVER_ERROR:
            span.set_status(Status(StatusCode.ERROR))

    def close(self) -> None:
        """Export remaining spans; waits for at most CLOSE_SECONDS."""
        thread = threading.Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        thread.join(CLOSE_SECONDS)

    def flush(self) -> None:
        self._provider.force_flush()

    def _flags(self, claim: Claim) -> TraceFlags:
        """Sampling decision by trace id alone, so that all processes agree."""
        decision = self._provider.sampler.should_sample(None, trace_id_for(claim), claim.type).decision
        return TraceFlags(TraceFlags.SAMPLED if decision.is_sampled() else TraceFlags.DEFAULT)


_HEADERS = ("traceparent", "tracestate")


@contextmanager
def _use_ids(trace_id: int, span_id: int) -> Generator[None]:
    token = _preset_ids.set((trace_id, span_id))
    try:
        yield
    finally:
        _preset_ids.reset(token)
