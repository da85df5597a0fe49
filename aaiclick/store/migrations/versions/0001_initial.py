"""The first schema.

The statements are in `0001_initial.sql`.
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

from aaiclick.store.migrations import comment_digest_sql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = """
    metric_counts, notifications, notification_rules, notification_channels, incidents, incident_occurrences,
    table_sessions, table_references, table_refcounts, operator_state, column_lineage, data_test_results,
    dataset_freshness, task_inputs, orphan_files,
    dispatches, outbox, waits, workflow_events, approval_links, approvals,
    workers,
    task_additions, task_attempts, dependencies, rate_limits, result_cache, tasks, groups, jobs,
    schedules, job_functions,
    dag_version_datasets, dataset_partitions, dataset_versions, datasets, job_definitions, dag_current_versions,
    dag_versions, ui_sessions, idempotency_keys, audit_log, org_secrets, api_keys, org_role_memberships, org_roles,
    users, task_types, queue_minutes, queues, orgs
"""
TYPES = """
    job_status, task_status, trigger_rule, task_readiness, worker_status, attempt_outcome, node_type, outbox_status,
    definition_status, reference_owner
"""


def upgrade() -> None:
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in script.split(";\n\n"):
        op.execute(statement.rstrip().removesuffix(";"))
    op.execute(comment_digest_sql())


def downgrade() -> None:
    op.execute("DROP FUNCTION log_path(tasks)")
    op.execute(f"DROP TABLE {TABLES}")
    op.execute(
        "DROP FUNCTION aaiclick_touch(), aaiclick_delete_dependencies(), aaiclick_count_references(), "
        "aaiclick_org_id(), aaiclick_add_metric_counts(), aaiclick_add_reopened_counts(), aaiclick_bucket(float8), "
        "aaiclick_wake_job_waits(), aaiclick_job_outcome(bigint), aaiclick_complete_linked_tasks, "
        "aaiclick_charge_rate, aaiclick_serves_version, aaiclick_find_awaited_turn, "
        "aaiclick_update_source_status(), aaiclick_set_source_status(uuid, bigint, timestamptz)"
    )
    op.execute("DROP SEQUENCE leader_terms, dataset_tickets")
    op.execute(f"DROP TYPE {TYPES}")
