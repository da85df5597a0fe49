"""The spans, by way of OpenTelemetry's SDK.

The ids of a job's trace, of the span of its submission and of each attempt are made from the ids that these have
anyway. So whoever holds a task knows its place in the trace: nothing is stored, nothing is sent along, and with traces
off nothing is paid. The caller's own trace, if there is one, is linked to the job's.
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
from aaiclick.store.leases import Claim, Lease

CLOSE_SECONDS = 3.0
SERVER_ERROR = 500

_given: ContextVar[tuple[int, int] | None] = ContextVar("aaiclick_span_ids", default=None)


class _Ids(IdGenerator):
    """Random ids, unless the span that is being made has some."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()

    def generate_trace_id(self) -> int:
        given = _given.get()
        return given[0] if given else self._random.generate_trace_id()

    def generate_span_id(self) -> int:
        given = _given.get()
        return given[1] if given else self._random.generate_span_id()


def trace_id_of(claim_or_job: Claim | int) -> int:
    """The trace of a job; a queue item, which has none, is a trace of its own."""
    if isinstance(claim_or_job, int):
        return _id(f"job {claim_or_job}", 16)
    job_id = claim_or_job.job_id
    return _id(f"task {claim_or_job.lease.task_id}" if job_id is None else f"job {job_id}", 16)


def _id(text: str, length: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=length).digest(), "big") or 1


def _submission_id(job_id: int) -> int:
    return _id(f"submission of {job_id}", 8)


def _attempt_id(lease: Lease) -> int:
    return _id(f"attempt {lease.attempt} of {lease.task_id}", 8)


class Tracing:
    """Makes spans, and sends them on in the background."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
        named = Resource.create()  # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
        ours = Resource({SERVICE_NAME: "aaiclick", SERVICE_VERSION: __version__})
        unnamed = str(named.attributes.get(SERVICE_NAME, "")).startswith("unknown_service")
        self._provider = TracerProvider(
            resource=named.merge(ours) if unnamed else ours.merge(named), id_generator=_Ids()
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("aaiclick", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def serve_tasks(self) -> None:
        """Spans that the code of tasks makes go the same way: for processes that are ours."""
        trace.set_tracer_provider(self._provider)

    def submitted(self, job_id: int, org_id: UUID, name: str, tasks: int | None = None) -> None:
        """The first span of a job's trace."""
        caller = trace.get_current_span().get_span_context()
        facts = {"aaiclick.job.id": str(job_id), "aaiclick.job.name": name, "aaiclick.org.id": str(org_id)}
        if tasks is not None:
            facts["aaiclick.job.tasks"] = str(tasks)
        with _ids(trace_id_of(job_id), _submission_id(job_id)):
            span = self._tracer.start_span(
                f"submit {name}",
                Context(),
                SpanKind.PRODUCER,
                facts,
                links=[Link(caller)] if caller.is_valid else (),
            )
        span.end()

    def began(self, claim: Claim) -> None:
        """Have spans that this context makes from now on be part of the attempt."""
        place = SpanContext(trace_id_of(claim), _attempt_id(claim.lease), True, self._flags(claim))
        contexts.attach(trace.set_span_in_context(NonRecordingSpan(place), Context()))

    def ended(self, claim: Claim, started_at: datetime, status: str, error: str | None = None) -> None:
        """The span of an attempt, when it is known what came of it."""
        lease = claim.lease
        facts: dict[str, str | int] = {
            "aaiclick.task.id": str(lease.task_id),
            "aaiclick.task.type": claim.type,
            "aaiclick.org.id": str(claim.org_id),
            "aaiclick.attempt": lease.attempt,
            "aaiclick.status": status,
        }
        parent = Context()
        if claim.job_id is not None:
            facts["aaiclick.job.id"] = str(claim.job_id)
            submission = SpanContext(trace_id_of(claim), _submission_id(claim.job_id), True, self._flags(claim))
            parent = trace.set_span_in_context(NonRecordingSpan(submission), parent)
        with _ids(trace_id_of(claim), _attempt_id(lease)):
            span = self._tracer.start_span(
                claim.type, parent, SpanKind.CONSUMER, facts, start_time=int(started_at.timestamp() * 1e9)
            )
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    @contextmanager
    def request(self, method: str, headers: Mapping[bytes, bytes]) -> Generator[Span]:
        """The span of an HTTP request, within the caller's trace if it has one."""
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
        """What is known of a request at its end: the route's template, and nothing of what was asked for."""
        span.update_name(f"{method} {route}" if route else method)
        span.set_attribute("http.response.status_code", status)
        if route:
            span.set_attribute("http.route", route)
        if org:
            span.set_attribute("aaiclick.org.id", org)
        if status >= SERVER_ERROR:
            span.set_status(Status(StatusCode.ERROR))

    def close(self) -> None:
        """Send what is left; a collector that does not answer is not waited for."""
        last = threading.Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        last.join(CLOSE_SECONDS)

    def flush(self) -> None:
        self._provider.force_flush()

    def _flags(self, claim: Claim) -> TraceFlags:
        """Whether the trace is sampled, by its id alone: everybody comes to the same answer."""
        decision = self._provider.sampler.should_sample(None, trace_id_of(claim), claim.type).decision
        return TraceFlags(TraceFlags.SAMPLED if decision.is_sampled() else TraceFlags.DEFAULT)


_HEADERS = ("traceparent", "tracestate")


@contextmanager
def _ids(trace_id: int, span_id: int) -> Generator[None]:
    token = _given.set((trace_id, span_id))
    try:
        yield
    finally:
        _given.reset(token)
