"""Endpoints of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType

from aaiclick.api.dags import BackfillResponse
from aaiclick.api.field_types import CreatedResponse, Page
from aaiclick.api.schedules import Schedule, ScheduleDetail, ScheduleRequest, ScheduleState, SyncSchedulesResponse
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class ScheduleEndpoints:
    """Methods for schedules."""

    @listing
    def list_schedules(
        self, *, state: ScheduleState | None = None, cursor: str | None = None, limit: int = 100
    ) -> ApiRequest[Page[Schedule]]:
        """Iterate over schedules by name."""
        query = {"state": state, "cursor": cursor, "limit": limit}
        return build_request("GET", Page[Schedule], "schedules", query=query)

    @endpoint
    def get_schedule(self, name: str) -> ApiRequest[ScheduleDetail]:
        """Get a schedule with its next times and its last runs."""
        return build_request("GET", ScheduleDetail, "schedules", name)

    @endpoint
    def create_schedule(self, schedule: ScheduleRequest) -> ApiRequest[Schedule]:
        """Create a schedule, or replace the one of the same name if the request says so."""
        return build_request("POST", Schedule, "schedules", body=schedule)

    @endpoint
    def delete_schedule(self, name: str) -> ApiRequest[None]:
        """Delete a schedule; its jobs continue."""
        return build_request("DELETE", NoneType, "schedules", name)

    @endpoint
    def pause_schedule(self, name: str) -> ApiRequest[None]:
        """Pause a schedule: no run of it starts."""
        return build_request("POST", NoneType, "schedules", name, "pause")

    @endpoint
    def resume_schedule(self, name: str) -> ApiRequest[None]:
        """Resume a paused schedule. Runs that were missed follow its policy."""
        return build_request("POST", NoneType, "schedules", name, "resume")

    @endpoint
    def fire_schedule(self, name: str, nominal: str | None = None) -> ApiRequest[CreatedResponse]:
        """Start a run of a schedule now."""
        return build_request("POST", CreatedResponse, "schedules", name, "fire", body={"nominal": nominal})

    @endpoint
    def backfill_schedule(
        self, name: str, first: str, last: str, *, dry_run: bool = False
    ) -> ApiRequest[BackfillResponse]:
        """Start the runs of past nominal times in a range that have not run; with `dry_run` only list them."""
        body = {"first": first, "last": last, "dry_run": dry_run}
        return build_request("POST", BackfillResponse, "schedules", name, "backfill", body=body)

    @endpoint
    def sync_schedules(
        self, module: str, schedules: Sequence[ScheduleRequest], *, dry_run: bool = False
    ) -> ApiRequest[SyncSchedulesResponse]:
        """Make the schedules of a module those that its code declares; with `dry_run` only compare them."""
        declared = [schedule.model_dump(mode="json", exclude_unset=True) for schedule in schedules]
        body = {"module": module, "schedules": declared, "dry_run": dry_run}
        return build_request("POST", SyncSchedulesResponse, "schedules", "sync", body=body)
