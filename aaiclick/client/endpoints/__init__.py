"""Endpoints of the HTTP API by resource, each declared once for the synchronous and the asynchronous client.

An endpoint has the name and the parameters of its operation in the module of the same name of `aaiclick.operations`.

- `jobs`: jobs
- `tasks`: tasks
- `dead_letters`: dead letters
- `outbox`: events that are pending or could not be routed
- `workflow_events`: events that tasks wait for
- `incidents`: incidents
- `notifications`: channels, rules and messages of notifications
- `approvals`: approvals and their one-time links
- `queues`: queues and task types
- `workers`: workers
- `schedules`: schedules
- `job_functions`: job functions
- `dags`: DAGs
- `datasets`: datasets
- `data_tests`: results of data tests
- `freshness`: freshness of datasets
- `objects`: Objects
- `orgs`: organisations
- `users`: users
- `roles`: dataset roles and their members
- `api_keys`: API keys
- `secrets`: secrets
- `audit`: audit log

Next: aaiclick.client.requests.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterator

from aaiclick.api.objects import FileFormat
from aaiclick.client.endpoint_decorators import AsyncCaller, SyncCaller
from aaiclick.client.endpoints.api_keys import ApiKeyEndpoints
from aaiclick.client.endpoints.approvals import ApprovalEndpoints
from aaiclick.client.endpoints.audit import AuditEndpoints
from aaiclick.client.endpoints.dags import DagEndpoints
from aaiclick.client.endpoints.data_tests import DataTestEndpoints
from aaiclick.client.endpoints.datasets import DatasetEndpoints
from aaiclick.client.endpoints.dead_letters import DeadLetterEndpoints
from aaiclick.client.endpoints.freshness import FreshnessEndpoints
from aaiclick.client.endpoints.incidents import IncidentEndpoints
from aaiclick.client.endpoints.job_functions import JobFunctionEndpoints
from aaiclick.client.endpoints.jobs import JobEndpoints
from aaiclick.client.endpoints.notifications import NotificationEndpoints
from aaiclick.client.endpoints.objects import ObjectEndpoints
from aaiclick.client.endpoints.orgs import OrgEndpoints
from aaiclick.client.endpoints.outbox import OutboxEndpoints
from aaiclick.client.endpoints.queues import QueueEndpoints
from aaiclick.client.endpoints.roles import RoleEndpoints
from aaiclick.client.endpoints.schedules import ScheduleEndpoints
from aaiclick.client.endpoints.secrets import SecretEndpoints
from aaiclick.client.endpoints.tasks import TaskEndpoints
from aaiclick.client.endpoints.users import UserEndpoints
from aaiclick.client.endpoints.workers import WorkerEndpoints
from aaiclick.client.endpoints.workflow_events import EventEndpoints


class Endpoints(
    JobEndpoints,
    TaskEndpoints,
    DeadLetterEndpoints,
    OutboxEndpoints,
    EventEndpoints,
    IncidentEndpoints,
    NotificationEndpoints,
    ApprovalEndpoints,
    QueueEndpoints,
    WorkerEndpoints,
    ScheduleEndpoints,
    JobFunctionEndpoints,
    DagEndpoints,
    DatasetEndpoints,
    DataTestEndpoints,
    FreshnessEndpoints,
    ObjectEndpoints,
    OrgEndpoints,
    UserEndpoints,
    RoleEndpoints,
    ApiKeyEndpoints,
    SecretEndpoints,
    AuditEndpoints,
):
    """All endpoints."""


class SyncEndpoints(Endpoints, SyncCaller):
    """All endpoints as methods that return their results."""

    @abstractmethod
    def export_object(self, table_id: str, format: FileFormat = "jsonl") -> Iterator[bytes]:  # noqa: A002
        """Stream all rows of an Object in a file format."""


class AsyncEndpoints(Endpoints, AsyncCaller):
    """All endpoints as methods that return awaitables."""

    @abstractmethod
    def export_object(self, table_id: str, format: FileFormat = "jsonl") -> AsyncGenerator[bytes]:  # noqa: A002
        """Stream all rows of an Object in a file format."""
