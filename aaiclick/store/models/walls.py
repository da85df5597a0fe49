"""Row-level security: what the API's role may see, table by table. Part of the metadata, like the triggers.

The wall stands for `aaiclick_api`, the role of the API's connections, and for anybody else who is not the owner. The
owner (workers, loops, the command line) works for all orgs and passes: nothing is FORCEd, so the hot path pays nothing.
A session says for whom it speaks by `aaiclick.org_id`; one that says nothing sees nothing. A table that is not named
here is closed.
"""

from __future__ import annotations

from sqlalchemy import Connection, event, text

from aaiclick.store.models.base import metadata

OWN = "org_id = aaiclick_org_id()"

POLICIES = {
    "orgs": "id = aaiclick_org_id()",
    "queues": OWN,
    "queue_minutes": OWN,
    "task_types": OWN,
    "users": OWN,
    "org_roles": OWN,
    "org_role_memberships": "EXISTS (SELECT FROM org_roles r WHERE r.id = role_id)",
    "api_keys": OWN,
    "org_secrets": OWN,
    "audit_log": OWN,
    "idempotency_keys": OWN,
    "dag_versions": OWN,
    "dag_current_versions": OWN,
    "job_definitions": OWN,
    "datasets": OWN,
    "dataset_versions": "EXISTS (SELECT FROM datasets d WHERE d.id = dataset_uuid)",
    "dataset_partitions": "EXISTS (SELECT FROM dataset_versions v WHERE v.id = dataset_version)",
    "dag_version_datasets": "EXISTS (SELECT FROM dag_versions v WHERE v.id = dag_version_id)",
    "jobs": OWN,
    "groups": "EXISTS (SELECT FROM jobs j WHERE j.id = job_id)",
    "tasks": OWN,
    "dependencies": (
        "EXISTS (SELECT FROM tasks t WHERE t.id = next_id) OR EXISTS (SELECT FROM groups g WHERE g.id = next_id)"
    ),
    "task_attempts": "EXISTS (SELECT FROM tasks t WHERE t.id = task_id)",
    "task_additions": "EXISTS (SELECT FROM tasks t WHERE t.id = task_id)",
    "table_references": (
        "EXISTS (SELECT FROM tasks t WHERE t.id = owner_id) OR EXISTS (SELECT FROM jobs j WHERE j.id = job_id)"
    ),
    "workers": OWN,
    "outbox": OWN,
    "dispatches": OWN,
    "task_inputs": "EXISTS (SELECT FROM tasks t WHERE t.id = task_id)",
    "column_lineage": "EXISTS (SELECT FROM datasets d WHERE d.id = output_dataset_uuid)",
    "operator_state": OWN,
}
"""Table → which rows belong to the org of the session. A subquery sees what its own table's policy lets it see."""

SHARED = "CREATE POLICY shared ON workers FOR SELECT USING (org_id IS NULL)"
"""Workers that serve everybody are there for everybody to see, and for nobody behind the wall to change."""

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
        SHARED,
    ]


def attach() -> None:
    """Have `metadata.create_all` build the walls after the tables."""

    def build(target: object, connection: Connection, **_: object) -> None:  # noqa: ARG001  (the event's signature)
        for statement in _statements():
            connection.execute(text(statement.replace("::", r"\:\:")))

    event.listen(metadata, "after_create", build)


attach()
