"""The models as Python objects."""

from __future__ import annotations

import pytest
from sqlalchemy import Enum
from sqlmodel import SQLModel

from aaiclick.store.models import Dependency, OutboxRow, Task, metadata, status
from aaiclick.store.words import DEFAULT_ORG_ID, NodeType, OutboxStatus, TaskReadiness, TaskStatus

TABLES = {
    "api_keys", "audit_log", "column_lineage", "dag_current_versions", "dag_version_datasets", "dag_versions",
    "dataset_partitions", "dataset_versions", "datasets", "dependencies", "dispatches", "groups",
    "idempotency_keys", "job_definitions", "jobs", "loose_files", "metric_counts", "operator_state",
    "org_role_memberships", "org_roles", "org_secrets", "orgs", "outbox", "queue_minutes", "queues",
    "table_refcounts", "table_references", "table_sessions", "task_additions", "task_attempts", "task_inputs",
    "task_types", "tasks", "ui_sessions", "users", "workers",
}  # fmt: skip


def test_all_tables_are_in_our_own_metadata() -> None:
    assert set(metadata.tables) == TABLES
    assert not TABLES & set(SQLModel.metadata.tables)


def test_a_new_task_is_ready_and_has_not_been_tried() -> None:
    task = Task(id=1, type="x")
    assert (task.status, task.readiness, task.attempt, task.failures) == (TaskStatus.PENDING, TaskReadiness.READY, 0, 0)
    assert (task.queue, task.kwargs, task.priority) == ("default", {}, 0)


def test_two_tasks_do_not_share_their_arguments() -> None:
    assert Task(id=1, type="x").kwargs is not Task(id=2, type="x").kwargs


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (status.JOB_STATUS, "PENDING RUNNING COMPLETED FAILED CANCELLED"),
        (status.TASK_STATUS, "PENDING CLAIMED RUNNING COMPLETED FAILED DEAD_LETTER CANCELLED"),
        (status.WORKER_STATUS, "ACTIVE IDLE STOPPED"),
        (status.TASK_READINESS, "READY TIME BLOCKED HELD"),
        (status.OUTBOX_STATUS, "Pending Processing Done Failed"),
        (status.NODE_TYPE, "task group"),
    ],
)
def test_enums_hold_the_words_of_the_requirements(column: Enum, labels: str) -> None:
    assert column.enums == labels.split()


def test_words_compare_with_plain_strings() -> None:
    assert OutboxRow(org_id=DEFAULT_ORG_ID, kind="route_event").status == OutboxStatus.PENDING == "Pending"
    edge = Dependency(previous_id=1, previous_type=NodeType.TASK, next_id=2, next_type=NodeType.GROUP)
    assert (edge.previous_type, edge.next_type) == ("task", "group")


def test_ids_are_never_made_by_the_database() -> None:
    for table in ("jobs", "tasks", "groups", "workers"):
        assert metadata.tables[table].c.id.autoincrement is False
        assert metadata.tables[table].c.id.server_default is None
