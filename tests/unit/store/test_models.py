"""The models as Python objects."""

from __future__ import annotations

import pytest
from sqlalchemy import Enum
from sqlmodel import SQLModel

from aaiclick.store.enums import DEFAULT_ORG_ID, NodeType, OutboxStatus, TaskReadiness, TaskStatus
from aaiclick.store.models import Dependency, OutboxRow, Task, enum_types, metadata

TABLES = {
    "api_keys", "audit_log", "column_lineage", "dag_current_versions", "dag_version_datasets", "dag_versions",
    "dataset_partitions", "dataset_versions", "datasets", "dependencies", "dispatches", "groups",
    "idempotency_keys", "job_definitions", "job_functions", "jobs", "orphan_files", "metric_counts", "operator_state",
    "org_role_memberships", "org_roles", "org_secrets", "orgs", "outbox", "queue_minutes", "queues", "rate_limits",
    "result_cache", "schedules", "table_refcounts", "table_references", "table_sessions", "task_additions",
    "task_attempts", "task_inputs", "task_types", "tasks", "ui_sessions", "users", "workers", "waits", "approvals",
    "approval_links", "workflow_events",
    "data_test_results", "dataset_freshness", "incident_occurrences", "incidents", "notification_channels",
    "notification_rules", "notifications",
}  # fmt: skip


def test_all_tables_are_in_the_store_metadata() -> None:
    assert set(metadata.tables) == TABLES
    assert not TABLES & set(SQLModel.metadata.tables)


def test_new_task_is_ready_without_attempts() -> None:
    task = Task(id=1, type="x")
    assert (task.status, task.readiness, task.attempt, task.failures) == (TaskStatus.PENDING, TaskReadiness.READY, 0, 0)
    assert (task.queue, task.kwargs, task.priority) == ("default", {}, 0)


def test_two_tasks_do_not_share_their_arguments() -> None:
    assert Task(id=1, type="x").kwargs is not Task(id=2, type="x").kwargs


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (enum_types.JOB_STATUS, "PENDING RUNNING COMPLETED FAILED CANCELLED"),
        (enum_types.TASK_STATUS, "PENDING CLAIMED RUNNING COMPLETED FAILED DEAD_LETTER CANCELLED SKIPPED"),
        (enum_types.WORKER_STATUS, "ACTIVE IDLE STOPPED"),
        (enum_types.TASK_READINESS, "READY TIME BLOCKED HELD"),
        (enum_types.OUTBOX_STATUS, "Pending Processing Done Failed"),
        (enum_types.NODE_TYPE, "task group handler"),
    ],
)
def test_enum_labels_match_the_requirements(column: Enum, labels: str) -> None:
    assert column.enums == labels.split()


def test_enum_members_compare_with_strings() -> None:
    assert OutboxRow(org_id=DEFAULT_ORG_ID, kind="route_event").status == OutboxStatus.PENDING == "Pending"
    edge = Dependency(previous_id=1, previous_type=NodeType.TASK, next_id=2, next_type=NodeType.GROUP)
    assert (edge.previous_type, edge.next_type) == ("task", "group")


def test_ids_have_no_server_default() -> None:
    for table in ("jobs", "tasks", "groups", "workers"):
        assert metadata.tables[table].c.id.autoincrement is False
        assert metadata.tables[table].c.id.server_default is None
