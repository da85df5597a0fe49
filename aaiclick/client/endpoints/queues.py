"""Endpoints of queues and task types."""

from __future__ import annotations

from types import NoneType

from aaiclick.api.workers import LimitsRequest, Queue, QueueScale, RetryPolicyRequest, TaskType
from aaiclick.client.endpoint_decorators import endpoint
from aaiclick.client.requests import ApiRequest, build_request


class QueueEndpoints:
    """Methods for queues and task types."""

    @endpoint
    def list_queues(self) -> ApiRequest[list[Queue]]:
        """List queues with the number of tasks in each state."""
        return build_request("GET", list[Queue], "queues")

    @endpoint
    def get_queue_scale(self, name: str) -> ApiRequest[QueueScale]:
        """Return the load of a queue, for an autoscaler of its workers."""
        return build_request("GET", QueueScale, "queues", name, "scale")

    @endpoint
    def set_queue_limits(self, name: str, limits: LimitsRequest) -> ApiRequest[None]:
        """Set the weight and limits of a queue; an omitted limit is removed."""
        return build_request("PUT", NoneType, "queues", name, body=limits)

    @endpoint
    def pause_queue(self, name: str) -> ApiRequest[None]:
        """Pause a queue: no further task starts."""
        return build_request("POST", NoneType, "queues", name, "pause")

    @endpoint
    def resume_queue(self, name: str) -> ApiRequest[None]:
        """Resume a paused queue."""
        return build_request("POST", NoneType, "queues", name, "resume")

    @endpoint
    def list_types(self) -> ApiRequest[list[TaskType]]:
        """List task types that have settings."""
        return build_request("GET", list[TaskType], "types")

    @endpoint
    def set_type_retry_policy(self, name: str, policy: RetryPolicyRequest) -> ApiRequest[None]:
        """Set the retry policy of a task type; None restores the default."""
        return build_request("PUT", NoneType, "types", name, body=policy)

    @endpoint
    def pause_type(self, name: str) -> ApiRequest[None]:
        """Pause a task type: no further task starts."""
        return build_request("POST", NoneType, "types", name, "pause")

    @endpoint
    def resume_type(self, name: str) -> ApiRequest[None]:
        """Resume a paused task type."""
        return build_request("POST", NoneType, "types", name, "resume")
