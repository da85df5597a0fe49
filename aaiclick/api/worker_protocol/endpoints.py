"""Requests of the worker protocol: path, body and response of each. All are POST requests.

`ALIASES` are the paths that the design documents name; they stay available as second paths of the same requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

from aaiclick.api.worker_protocol.claims import (
    ClaimRequest,
    ClaimResponse,
    ExchangeRequest,
    ExchangeResponse,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    StartResponse,
    WaitRequest,
    WaitResponse,
)
from aaiclick.api.worker_protocol.dag_tasks import (
    DefinitionRequest,
    DefinitionResponse,
    DigestResponse,
    EmitRequest,
    GenerationRequest,
    PartitionsRequest,
    PartitionsResponse,
    PublishRequest,
    PublishResponse,
    StateRequest,
    StateResponse,
    TicketResponse,
)
from aaiclick.api.worker_protocol.field_types import LeaseRequest, LeasesRequest
from aaiclick.api.worker_protocol.outcomes import CompleteRequest, FailRequest
from aaiclick.api.worker_protocol.tasks import (
    AddTasksRequest,
    CachedResultRequest,
    LiteralsRequest,
    LiteralsResponse,
    LogRequest,
    NameTableRequest,
    ResultsRequest,
    ResultsResponse,
    SecretsRequest,
    SecretsResponse,
    StoreLiteralRequest,
    StoreLiteralResponse,
    TablesRequest,
    TablesResponse,
)
from aaiclick.api.worker_protocol.workers import (
    CountsRequest,
    DrainingResponse,
    HeldTasksResponse,
    OverdueRequest,
    OverdueResponse,
    RegisterFunctionsRequest,
    RegisterRequest,
    RegisterResponse,
    RenewLeasesRequest,
    RunLoopsRequest,
    SettleRequest,
    WorkerRequest,
    WorkersRequest,
)

PREFIX = "/v1/worker-api"

RequestT = TypeVar("RequestT", bound=BaseModel)
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[RequestT, ResponseT]):
    """A request of the protocol; the response of None is 204."""

    path: str
    request: type[RequestT]
    response: type[ResponseT]


_WORKERS, _TASKS, _NONE = f"{PREFIX}/workers", f"{PREFIX}/tasks", type(None)

# --- supervisor -------------------------------------------------------------------------------------------------------

REGISTER_WORKER = Endpoint(f"{_WORKERS}/register", RegisterRequest, RegisterResponse)
REGISTER_FUNCTIONS = Endpoint(f"{_WORKERS}/functions", RegisterFunctionsRequest, _NONE)
RENEW_LEASES = Endpoint(f"{_WORKERS}/renew", RenewLeasesRequest, _NONE)
LIST_HELD_TASKS = Endpoint(f"{_WORKERS}/held-tasks", WorkerRequest, HeldTasksResponse)
LIST_OVERDUE_TASKS = Endpoint(f"{_WORKERS}/overdue-tasks", OverdueRequest, OverdueResponse)
LIST_DRAINING_WORKERS = Endpoint(f"{_WORKERS}/draining", WorkersRequest, DrainingResponse)
ADD_COUNTS = Endpoint(f"{_WORKERS}/counts", CountsRequest, _NONE)
RUN_LOOPS = Endpoint(f"{_WORKERS}/run-loops", RunLoopsRequest, _NONE)
SETTLE_WORKER = Endpoint(f"{_WORKERS}/settle", SettleRequest, _NONE)

# --- worker process ---------------------------------------------------------------------------------------------------

CLAIM = Endpoint(f"{_TASKS}/claim", ClaimRequest, ClaimResponse)
FETCH = Endpoint(f"{_TASKS}/fetch", FetchRequest, FetchResponse)
START = Endpoint(f"{_TASKS}/start", LeasesRequest, StartResponse)
HEARTBEAT = Endpoint(f"{_TASKS}/heartbeat", HeartbeatRequest, HeartbeatResponse)
EXCHANGE = Endpoint(f"{_TASKS}/exchange", ExchangeRequest, ExchangeResponse)
COMPLETE = Endpoint(f"{_TASKS}/complete", CompleteRequest, _NONE)
FAIL = Endpoint(f"{_TASKS}/fail", FailRequest, _NONE)
RELEASE = Endpoint(f"{_TASKS}/release", LeaseRequest, _NONE)
WRITE_LOG = Endpoint(f"{_TASKS}/log", LogRequest, _NONE)
WAIT = Endpoint(f"{_TASKS}/wait", WaitRequest, WaitResponse)

# --- running attempt --------------------------------------------------------------------------------------------------

ADD_TASKS = Endpoint(f"{_TASKS}/add", AddTasksRequest, _NONE)
GET_RESULTS = Endpoint(f"{_TASKS}/results", ResultsRequest, ResultsResponse)
FIND_CACHED_RESULT = Endpoint(f"{_TASKS}/cached-result", CachedResultRequest, ResultsResponse)
LOAD_LITERALS = Endpoint(f"{_TASKS}/literals", LiteralsRequest, LiteralsResponse)
STORE_LITERAL = Endpoint(f"{_TASKS}/literal-table", StoreLiteralRequest, StoreLiteralResponse)
UPDATE_TABLES = Endpoint(f"{_TASKS}/tables", TablesRequest, TablesResponse)
NAME_TABLE = Endpoint(f"{_TASKS}/table-name", NameTableRequest, _NONE)
READ_SECRETS = Endpoint(f"{_TASKS}/secrets", SecretsRequest, SecretsResponse)
GET_DEFINITION = Endpoint(f"{_TASKS}/definition", DefinitionRequest, DefinitionResponse)
TAKE_TICKET = Endpoint(f"{_TASKS}/ticket", LeaseRequest, TicketResponse)
GET_STATE = Endpoint(f"{_TASKS}/state", StateRequest, StateResponse)
LIST_PARTITIONS = Endpoint(f"{_TASKS}/partitions", PartitionsRequest, PartitionsResponse)
GET_DIGEST = Endpoint(f"{_TASKS}/digest", GenerationRequest, DigestResponse)
PUBLISH = Endpoint(f"{_TASKS}/publish", PublishRequest, PublishResponse)
EMIT_EVENTS = Endpoint(f"{_TASKS}/events", EmitRequest, _NONE)

ALIASES: Mapping[str, str] = {
    "/internal/task-fetch": FETCH.path,
    "/v1/task/claim": CLAIM.path,
    "/v1/task/heartbeat": HEARTBEAT.path,
    "/v1/task/events": EMIT_EVENTS.path,
    "/v1/task/complete": COMPLETE.path,
    "/v1/task/fail": FAIL.path,
}
"""Path of a design document → path of the same request."""
