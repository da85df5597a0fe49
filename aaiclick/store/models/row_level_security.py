"""Policies of row-level security, part of the metadata like the triggers.

They apply to `aaiclick_api`, the role of the API's connections, and to all other roles but the owner. The owner
(workers, loops, the command line) works for all orgs and bypasses them (no FORCE), so claims do not pay for them. A
session sets its tenant in `aaiclick.org_id`; without one it sees nothing. Tables without a policy are closed.
"""

from __future__ import annotations

from sqlalchemy import Connection, event, text

from aaiclick.store.models.base import metadata

SAME_ORG = "org_id = aaiclick_org_id()"

POLICIES = {
    "orgs": "id = aaiclick_org_id()",
    "queues": SAME_ORG,
    "queue_minutes": SAME_ORG,
    "task_types": SAME_ORG,
    "users": SAME_ORG,
    "org_roles": SAME_ORG,
    "org_role_memberships": "EXISTS (SELECT FROM org_roles r WHERE r.id = role_id)",
    "api_keys": SAME_ORG,
    "org_secrets": SAME_ORG,
    "audit_log": SAME_ORG,
    "idempotency_keys": SAME_ORG,
    "dag_versions": SAME_ORG,
    "dag_current_versions": SAME_ORG,
    "job_definitions": SAME_ORG,
    "datasets": SAME_ORG,
    "dataset_versions": "EXISTS (SELECT FROM datasets d WHERE d.id = dataset_uuid)",
    "dataset_partitions": "EXISTS (SELECT FROM dataset_versions v WHERE v.id = dataset_version)",
    "dag_version_datasets": "EXISTS (SELECT FROM dag_versions v WHERE v.id = dag_version_id)",
    "schedules": SAME_ORG,
    "job_functions": SAME_ORG,
    "jobs": SAME_ORG,
    "groups": "EXISTS (SELECT FROM jobs j WHERE j.id = job_id)",
    "tasks": SAME_ORG,
    "rate_limits": SAME_ORG,
    "result_cache": SAME_ORG,
    "dependencies": (
        "EXISTS (SELECT FROM tasks t WHERE t.id = next_id) OR EXISTS (SELECT FROM groups g WHERE g.id = next_id)"
    ),
    "task_attempts": "EXISTS (SELECT FROM tasks t WHERE t.id = task_id)",
    "task_additions": "EXISTS (SELECT FROM tasks t WHERE t.id = task_id)",
    "table_references": (
        "EXISTS (SELECT FROM tasks t WHERE t.id = owner_id) OR EXISTS (SELECT FROM jobs j WHERE j.id = job_id)"
    ),
    "waits": SAME_ORG,
    "workflow_events": SAME_ORG,
    "incidents": SAME_ORG,
    "notification_channels": SAME_ORG,
    "notification_rules": SAME_ORG,
    "notifications": SAME_ORG,
    "approvals": SAME_ORG,
    "approval_links": SAME_ORG,
    "workers": SAME_ORG,
    "outbox": SAME_ORG,
    "dispatches": SAME_ORG,
    "task_inputs": "EXISTS (SELECT FROM tasks t WHERE t.id = task_id)",
    "dataset_freshness": SAME_ORG,
    "data_test_results": SAME_ORG,
    "column_lineage": "EXISTS (SELECT FROM datasets d WHERE d.id = output_dataset_uuid)",
    "operator_state": SAME_ORG,
}
"""Table → condition of the rows of the session's org. Subqueries are subject to the policies of their tables."""

SHARED_WORKERS_POLICY = "CREATE POLICY shared ON workers FOR SELECT USING (org_id IS NULL)"
"""Workers that serve all orgs are visible to all, and not changeable by the API."""

_ORG = """
CREATE OR REPLACE FUNCTION aaiclick_org_id() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT nullif(current_setting('aaiclick.org_id', true), '')::uuid $$
"""


def _statements() -> list[str]:
    closed = [f"ALTER TABLE {table.name} ENABLE ROW LEVEL SECURITY" for table in metadata.sorted_tables]
    return [
        _ORG,
        *closed,
        *(f"CREATE POLICY org ON {table} USING ({rows})" for table, rows in POLICIES.items()),
        SHARED_WORKERS_POLICY,
    ]


def attach_policies() -> None:
    """Make `metadata.create_all` create the policies after the tables."""

    def create_policies(target: object, connection: Connection, **_: object) -> None:  # noqa: ARG001  (the event's signature)
        for statement in _statements():
            connection.execute(text(statement.replace("::", r"\:\:")))

    event.listen(metadata, "after_create", create_policies)


attach_policies()
