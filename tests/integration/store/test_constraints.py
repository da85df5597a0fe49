"""CHECK constraints: for each at least one row that violates it and no other."""

from __future__ import annotations

import asyncpg
import pytest

ORG = "'00000000-0000-4000-8000-000000000001'"
UUID = "'11111111-1111-4111-8111-111111111111'"
LEASE = {
    "readiness": "NULL",
    "attempt": "1",
    "worker_id": "7",
    "lease_token": "gen_random_uuid()",
    "lease_expires_at": "now()",
    "claimed_at": "now()",
}
CLAIMED = {"status": "'CLAIMED'", **LEASE}
RUNNING = {"status": "'RUNNING'", **LEASE, "started_at": "now()"}
ENDED = {"readiness": "NULL", "completed_at": "now()"}
RETRYING = {
    "status": "'FAILED'",
    "readiness": "'TIME'",
    "attempt": "1",
    "failures": "1",
    "available_at": "now()",
    "next_retry_at": "now()",
}
SOURCE = {
    "org_id": ORG,
    "name": "'n'",
    "dag_name": "'d'",
    "dag_version_id": UUID,
    "activation": "'source'",
    "runtime": "'pool'",
    "operator": "'sql'",
    "source": "'{}'",
    "config_hash": "'h'",
    "update_strategy": "'replace'",
    "status": "'Pending'",
}
REACTIVE = SOURCE | {
    "activation": "'reactive'",
    "source": "NULL",
    "execution_strategy": "'PerUpdate'",
    "status": "'Idle'",
}

SCHEDULE = {
    "id": "4",
    "org_id": ORG,
    "name": "'n'",
    "entrypoint": "'m.f'",
    "job_name": "'f'",
    "cron": "'@daily'",
    "timezone": "'UTC'",
    "missed": "'all'",
    "max_missed": "1",
    "overlap": "'allow'",
}

ROWS: dict[str, dict[str, str]] = {
    "tasks": {"id": "1", "type": "'x'"},
    "jobs": {"id": "2", "org_id": ORG, "name": "'x'"},
    "groups": {"id": "3", "job_id": "900", "name": "'x'"},
    "dependencies": {"previous_id": "1", "next_id": "2", "previous_type": "'task'", "next_type": "'task'"},
    "task_attempts": {"task_id": "901", "attempt": "1", "charged": "true", "outcome": "'FAILED'"},
    "incidents": {"org_id": ORG, "rule": "'r'", "fingerprint": "'f'", "severity": "'error'", "title": "'t'"},
    "incident_occurrences": {"org_id": ORG, "count": "1", "rule": "'r'", "fingerprint": "'f'"},
    "notification_channels": {"org_id": ORG, "name": "'c'", "channel_type": "'slack'"},
    "notification_rules": {"org_id": ORG, "name": "'r'"},
    "notifications": {"org_id": ORG, "incident_id": "900", "channel": "'c'", "event": "'opened'"},
    "approvals": {
        "id": "1",
        "org_id": ORG,
        "task_id": "901",
        "attempt": "1",
        "expires_at": "now()",
        "title": "'t'",
        "role": "'writer'",
    },
    "approval_links": {
        "token_hash": "'h'",
        "org_id": ORG,
        "approval_id": "900",
        "expires_at": "now()",
        "recipient": "'r'",
    },
    "dataset_freshness": {
        "dataset_uuid": UUID,
        "org_id": ORG,
        "max_age_seconds": "60",
        "timezone": "'UTC'",
        "days": "'mon'",
        "due_at": "now()",
    },
    "data_test_results": {
        "org_id": ORG,
        "subject": "'s'",
        "task_id": "901",
        "attempt": "1",
        "number": "1",
        "test": "'unique'",
        "on_failure": "'block'",
        "outcome": "'blocked'",
        "rows": "1",
        "failing_rows": "1",
        "message": "''",
        "published": "false",
    },
    "waits": {"task_id": "901", "org_id": ORG, "attempt": "1", "wait_type": "'time'"},
    "workflow_events": {"id": "1", "org_id": ORG, "name": "'n'", "expires_at": "now()"},
    "workers": {"id": "1", "hostname": "'h'", "pid": "1"},
    "outbox": {"org_id": ORG, "kind": "'route_event'", "payload": "'{}'"},
    "dispatches": {"task_id": "1", "org_id": ORG, "attempt": "0"},
    "orphan_files": {"dataset_version": UUID, "name": "'f'", "org_id": ORG, "location": "'l/'", "replaced_at": "now()"},
    "orgs": {"name": "'x'", "slug": "'x'"},
    "queues": {"org_id": ORG, "name": "'x'"},
    "queue_minutes": {"org_id": ORG, "queue": "'x'", "minute": "now()", "completed": "0", "failed": "0"},
    "task_types": {"org_id": ORG, "name": "'x'"},
    "users": {"org_id": ORG, "external_id": "'e'", "role": "'reader'"},
    "api_keys": {"org_id": ORG, "name": "'x'", "prefix": "'p'", "key_hash": "'h'", "scopes": "'{reader}'"},
    "org_secrets": {"org_id": ORG, "name": "'x'", "ciphertext": "'c'", "key_id": "'k'"},
    "ui_sessions": {"token_hash": "'h'", "key_id": UUID, "expires_at": "now()"},
    "job_definitions": SOURCE,
    "schedules": SCHEDULE,
    "rate_limits": {
        "org_id": ORG,
        "key": "'k'",
        "allowed": "1",
        "seconds": "60",
        "charged_at": "now()",
        "ends": "'{}'",
        "counts": "'{}'",
    },
    "job_functions": {"org_id": ORG, "entrypoint": "'m.f'", "module": "'m'", "name": "'f'", "documentation": "''"},
    "datasets": {
        "org_id": ORG,
        "name": "'x'",
        "producer_dag_name": "'d'",
        "producer_job_name": "'j'",
        "producer_output_index": "0",
    },
    "dataset_versions": {"dataset_uuid": UUID, "storage_location": "'l'", "config_hash": "'h'"},
    "table_refcounts": {"table_name": "'t1'"},
    "table_references": {"table_name": "'t900'", "owner": "'TASK'", "owner_id": "1"},
}

ALLOWED: list[tuple[str, dict[str, str]]] = [(table, {}) for table in ROWS] + [
    ("tasks", CLAIMED),
    ("tasks", RUNNING),
    ("tasks", {"status": "'COMPLETED'", "attempt": "1", "worker_id": "7", **ENDED}),
    ("tasks", {"status": "'COMPLETED'", **ENDED}),  # reused from another: never claimed
    ("tasks", {"status": "'FAILED'", "attempt": "1", "failures": "1", **ENDED}),
    ("tasks", {"status": "'DEAD_LETTER'", "attempt": "9", "failures": "4", **ENDED}),
    ("tasks", {"status": "'CANCELLED'", "cause_id": "5", "unmet": "2", **ENDED}),
    ("tasks", RETRYING),
    ("tasks", RETRYING | {"readiness": "'HELD'"}),
    ("tasks", {"readiness": "'BLOCKED'", "unmet": "2"}),
    ("tasks", {"readiness": "'BLOCKED'"}),  # its group is closed
    ("tasks", {"readiness": "'HELD'", "unmet": "2"}),
    ("tasks", {"readiness": "'TIME'", "available_at": "now()"}),
    ("tasks", {"job_id": "900", "group_id": "902"}),
    (
        "jobs",
        {"status": "'RUNNING'", "started_at": "now()", "total_tasks": "3", "open_tasks": "2", "failed_tasks": "1"},
    ),
    ("jobs", {"status": "'FAILED'", "completed_at": "now()", "total_tasks": "1", "failed_tasks": "1"}),
    ("groups", {"completed_at": "now()"}),
    ("groups", {"failed_at": "now()", "cause_id": "1", "open": "3"}),
    ("groups", {"skipped_at": "now()", "unmet": "1"}),
    ("approvals", {"decided_at": "now()", "decision": "'approved'", "decided_by": "'a'"}),
    ("dataset_freshness", {"max_age_seconds": "NULL", "by_time": "'07:00'"}),
    ("data_test_results", {"outcome": "'warned'", "published": "true"}),
    ("waits", {"wait_type": "'job'", "job_id": "900"}),
    ("workflow_events", {"key": "'k'"}),
    ("workers", {"is_leader": "true", "leader_until": "now()", "leader_term": "1"}),
    ("workers", {"status": "'STOPPED'", "stopped_at": "now()", "leader_term": "1"}),
    ("outbox", {"status": "'Failed'", "processed_at": "now()", "last_error": "'no'"}),
    ("outbox", {"status": "'Done'", "processed_at": "now()"}),
    ("task_attempts", {"outcome": "'RELEASED'", "charged": "false"}),
    ("job_definitions", REACTIVE),
    ("job_definitions", {"runtime": "'ecs_platform'", "update_strategy": "'append'", "unique_key": "'{id}'"}),
    ("schedules", {"next_run_at": "now()", "due_at": "now()"}),
    ("schedules", {"next_run_at": "now()", "paused_at": "now()"}),
    ("schedules", {"cron": "NULL", "every_seconds": "1"}),
    ("schedules", {"entrypoint": "NULL", "job_name": "NULL", "item_type": "'x'"}),
    ("dataset_versions", {"range_start": "1", "range_end": "1"}),
    ("dataset_versions", {"range_end": "9223372036854775807"}),
    ("table_refcounts", {"refcount": "-1", "dropping_at": "now()"}),
    ("table_references", {"owner": "'ATTEMPT'", "attempt": "2"}),
    ("table_references", {"owner": "'NAME'", "owner_id": "0", "name": "'sales'"}),
]

REFUSED: list[tuple[str, str, dict[str, str]]] = [
    ("schedules", "named", {"name": "''"}),
    ("schedules", "target", {"item_type": "'x'"}),
    ("schedules", "job_name", {"job_name": "NULL"}),
    ("schedules", "times", {"every_seconds": "5"}),
    ("schedules", "times", {"cron": "NULL", "every_seconds": "0.5"}),
    ("schedules", "missed", {"missed": "'one'"}),
    ("schedules", "missed", {"max_missed": "0"}),
    ("schedules", "overlap", {"overlap": "'x'"}),
    ("schedules", "item_overlap", {"entrypoint": "NULL", "job_name": "NULL", "item_type": "'x'", "overlap": "'skip'"}),
    ("schedules", "nominal", {"nominal_parameter": "'day'"}),
    ("schedules", "nominal_type", {"nominal_parameter": "'day'", "nominal_type": "'time'"}),
    ("schedules", "timeout", {"timeout_seconds": "0"}),
    ("schedules", "due", {"due_at": "now()"}),
    ("schedules", "due", {"next_run_at": "now()", "due_at": "now()", "paused_at": "now()"}),
    ("schedules", "active", {"next_run_at": "now()"}),
    ("rate_limits", "positive", {"seconds": "0"}),
    ("rate_limits", "slots", {"counts": "'{1}'"}),
    ("job_functions", "named", {"name": "''"}),
    ("job_functions", "timeout", {"timeout_seconds": "0"}),
    ("jobs", "concurrency", {"concurrency": "0"}),
    ("tasks", "phase", {"completed_at": "now()"}),
    ("tasks", "phase", {"status": "'COMPLETED'", "readiness": "NULL"}),
    ("tasks", "phase", {"status": "'CANCELLED'", "readiness": "NULL"}),
    ("tasks", "phase", {"status": "'FAILED'", "readiness": "NULL"}),
    ("tasks", "phase", RETRYING | {"completed_at": "now()"}),
    ("tasks", "phase", CLAIMED | {"completed_at": "now()"}),
    ("tasks", "lease", {"status": "'CLAIMED'", "readiness": "NULL", "completed_at": "now()"}),
    ("tasks", "lease", {"status": "'RUNNING'", "readiness": "NULL", "completed_at": "now()"}),
    ("tasks", "lease", {**LEASE, "status": "'COMPLETED'"}),
    ("tasks", "waiting", {"readiness": "NULL", "completed_at": "now()"}),
    ("tasks", "waiting", {"status": "'CANCELLED'", "readiness": "'HELD'"}),
    ("tasks", "waiting", {"status": "'FAILED'", "readiness": "'HELD'"}),
    ("tasks", "waiting", RETRYING | {"readiness": "NULL", "completed_at": "now()"}),
    ("tasks", "holder", CLAIMED | {"lease_expires_at": "NULL"}),
    ("tasks", "holder", CLAIMED | {"worker_id": "NULL"}),
    ("tasks", "holder", CLAIMED | {"claimed_at": "NULL"}),
    ("tasks", "blocked", {"unmet": "1"}),
    ("tasks", "blocked", CLAIMED | {"unmet": "1"}),
    ("tasks", "blocked", {"readiness": "'TIME'", "available_at": "now()", "unmet": "1"}),
    ("tasks", "timed", {"readiness": "'TIME'"}),
    ("tasks", "retry", {"next_retry_at": "now()", "available_at": "now()"}),
    ("tasks", "retry", RETRYING | {"readiness": "'READY'"}),
    ("tasks", "retry", RETRYING | {"available_at": "now() + interval '1 s'"}),
    ("tasks", "cause", {"cause_id": "5"}),
    ("tasks", "counters", {"failures": "1"}),
    ("tasks", "counters", {"attempt": "9", "failures": "5"}),
    ("tasks", "counters", {"max_attempts": "0"}),
    ("tasks", "counters", {"unmet": "-1", "readiness": "'BLOCKED'"}),
    ("tasks", "group_job", {"group_id": "902"}),
    ("jobs", "named", {"name": "''"}),
    ("jobs", "timeout", {"timeout_seconds": "-1"}),
    ("jobs", "ended", {"status": "'COMPLETED'"}),
    ("jobs", "ended", {"completed_at": "now()"}),
    ("jobs", "ended_tasks", {"status": "'FAILED'", "completed_at": "now()", "total_tasks": "2", "open_tasks": "1"}),
    ("jobs", "success", {"status": "'COMPLETED'", "completed_at": "now()", "total_tasks": "2", "failed_tasks": "1"}),
    ("jobs", "success", {"status": "'COMPLETED'", "completed_at": "now()", "open_events": "1"}),
    ("jobs", "started", {"status": "'RUNNING'"}),
    ("jobs", "open_tasks", {"open_tasks": "1"}),
    ("jobs", "open_tasks", {"open_tasks": "-1"}),
    ("jobs", "failed_tasks", {"failed_tasks": "1"}),
    ("jobs", "cancelled_tasks", {"cancelled_tasks": "1"}),
    ("jobs", "open_events", {"open_events": "-1"}),
    ("groups", "parent", {"parent_group_id": "3"}),
    ("groups", "counters", {"unmet": "-1"}),
    ("groups", "counters", {"open": "-1"}),
    ("groups", "completed", {"completed_at": "now()", "open": "1"}),
    ("groups", "completed", {"completed_at": "now()", "unmet": "1"}),
    ("groups", "completed", {"completed_at": "now()", "failed_at": "now()", "cause_id": "1"}),
    ("groups", "cause", {"failed_at": "now()"}),
    ("incidents", "severity", {"severity": "'x'"}),
    ("incidents", "count", {"count": "0"}),
    ("incidents", "closed", {"closed_at": "now()"}),
    ("incidents", "acknowledged", {"acknowledged_by": "'a'"}),
    ("incident_occurrences", "count", {"count": "0"}),
    ("notification_channels", "channel_type", {"channel_type": "'x'"}),
    ("notification_channels", "digest", {"digest_seconds": "0"}),
    ("notification_channels", "quiet", {"quiet_from": "'22:00'"}),
    ("notification_rules", "min_severity", {"min_severity": "'x'"}),
    ("notification_rules", "escalation", {"escalate_after_seconds": "60"}),
    ("notification_rules", "escalate_after", {"escalate_after_seconds": "0", "escalate_to": "'{c}'"}),
    ("notifications", "event", {"event": "'x'"}),
    ("notifications", "sent", {"task_id": "900"}),
    ("approvals", "named", {"title": "''"}),
    ("approvals", "named", {"role": "''"}),
    ("approvals", "decision", {"decided_at": "now()", "decision": "'x'", "decided_by": "'a'"}),
    ("approvals", "decided", {"decision": "'approved'"}),
    ("approval_links", "recipient", {"recipient": "''"}),
    ("dataset_freshness", "policy", {"max_age_seconds": "NULL"}),
    ("dataset_freshness", "policy", {"by_time": "'07:00'"}),
    ("data_test_results", "on_failure", {"on_failure": "'x'"}),
    ("data_test_results", "outcome", {"outcome": "'x'"}),
    ("data_test_results", "published", {"published": "true"}),
    ("waits", "wait_type", {"wait_type": "'x'"}),
    ("waits", "job", {"job_id": "900"}),
    ("workflow_events", "named", {"name": "''"}),
    ("groups", "outcome", {"failed_at": "now()", "cause_id": "1", "skipped_at": "now()"}),
    ("dependencies", "distinct", {"next_id": "1"}),
    ("task_attempts", "attempt", {"attempt": "0"}),
    ("task_attempts", "released", {"outcome": "'RELEASED'"}),
    ("workers", "pool_size", {"pool_size": "0"}),
    ("workers", "counters", {"tasks_failed": "-1"}),
    ("workers", "stopped", {"status": "'STOPPED'"}),
    ("workers", "stopped", {"stopped_at": "now()"}),
    ("workers", "leader_until", {"leader_until": "now()"}),
    ("workers", "leader_until", {"is_leader": "true", "leader_term": "1"}),
    ("workers", "leader", {"is_leader": "true", "leader_until": "now()"}),
    (
        "workers",
        "leader",
        {
            "is_leader": "true",
            "leader_until": "now()",
            "leader_term": "1",
            "status": "'STOPPED'",
            "stopped_at": "now()",
        },
    ),
    ("outbox", "kind", {"kind": "'other'"}),
    ("outbox", "failed", {"status": "'Failed'", "processed_at": "now()"}),
    ("outbox", "processed", {"status": "'Done'"}),
    ("outbox", "processed", {"processed_at": "now()"}),
    ("outbox", "attempts", {"attempts": "-1"}),
    ("dispatches", "sent", {"sent": "0"}),
    ("orphan_files", "writer", {"replaced_at": "NULL"}),
    ("orphan_files", "writer", {"task_id": "1", "attempt": "1"}),
    ("orgs", "slug", {"slug": "'No Spaces'"}),
    ("orgs", "weight", {"weight": "0"}),
    ("orgs", "max_running", {"max_running": "-1"}),
    ("orgs", "rate", {"rate_per_second": "0"}),
    ("queues", "named", {"name": "''"}),
    ("task_types", "named", {"name": "''"}),
    ("queue_minutes", "counts", {"failed": "-1"}),
    ("queues", "weight", {"weight": "0"}),
    ("queues", "max_running", {"max_running": "-1"}),
    ("queues", "rate", {"rate_burst": "0"}),
    ("users", "role", {"role": "'owner'"}),
    ("api_keys", "scopes", {"scopes": "'{reader,owner}'"}),
    ("api_keys", "scopes", {"scopes": "'{}'"}),
    ("org_secrets", "named", {"name": "'X'"}),
    ("ui_sessions", "holder", {"key_id": "NULL"}),
    ("job_definitions", "activation", {"activation": "'other'", "source": "NULL", "status": "'Running'"}),
    ("job_definitions", "runtime", {"runtime": "'kubernetes'"}),
    ("job_definitions", "source", {"source": "NULL"}),
    ("job_definitions", "source", REACTIVE | {"source": "'{}'"}),
    ("job_definitions", "bootstrap", REACTIVE | {"bootstrap": "'{}'"}),
    ("job_definitions", "strategy_activation", {"execution_strategy": "'PerUpdate'"}),
    ("job_definitions", "strategy_activation", REACTIVE | {"execution_strategy": "NULL"}),
    ("job_definitions", "execution_strategy", REACTIVE | {"execution_strategy": "'Bulk'"}),
    ("job_definitions", "idle_timeout", {"idle_timeout": "'5m'"}),
    ("job_definitions", "update_strategy", {"update_strategy": "'merge'"}),
    ("job_definitions", "unique_key", {"update_strategy": "'append'"}),
    ("job_definitions", "unique_key", {"update_strategy": "'append'", "unique_key": "'{}'"}),
    ("job_definitions", "status", {"status": "'Idle'"}),
    ("job_definitions", "status", REACTIVE | {"status": "'Dead'"}),
    ("job_definitions", "limits", {"timeout_seconds": "0"}),
    ("job_definitions", "limits", {"max_attempts": "0"}),
    ("datasets", "output_index", {"producer_output_index": "-1"}),
    ("dataset_versions", "range", {"range_start": "2", "range_end": "1"}),
    ("table_refcounts", "dropping", {"refcount": "1", "dropping_at": "now()"}),
    ("table_references", "refs", {"refs": "0"}),
    ("table_references", "by_name", {"owner": "'NAME'", "owner_id": "0"}),
    ("table_references", "by_id", {"owner_id": "0"}),
    ("table_references", "by_attempt", {"owner": "'ATTEMPT'"}),
    ("table_references", "by_attempt", {"attempt": "1"}),
    ("table_references", "by_job", {"owner": "'JOB'", "owner_id": "900"}),
]


@pytest.fixture
async def world(db: asyncpg.Connection) -> asyncpg.Connection:
    """The database with the rows that the cases reference."""
    await db.execute(f"""
        INSERT INTO jobs (id, org_id, name) VALUES (900, {ORG}, 'job');
        INSERT INTO tasks (id, type) VALUES (901, 'x');
        INSERT INTO groups (id, job_id, name) VALUES (902, 900, 'group');
        INSERT INTO api_keys (id, org_id, name, prefix, key_hash, scopes)
            VALUES ({UUID}, {ORG}, 'key', 'other', 'h', '{{reader}}');
        INSERT INTO dag_versions (id, org_id, dag_name, yaml_hash, yaml) VALUES ({UUID}, {ORG}, 'd', 'h', '');
        INSERT INTO datasets (id, org_id, name, producer_dag_name, producer_job_name, producer_output_index)
            VALUES ({UUID}, {ORG}, 'dataset', 'd', 'other', 0);
        INSERT INTO incidents (id, org_id, rule, fingerprint, severity, title) OVERRIDING SYSTEM VALUE
            VALUES (900, {ORG}, 'r', 'other', 'error', 't');
        INSERT INTO approvals (id, org_id, task_id, attempt, expires_at, title, role)
            VALUES (900, {ORG}, 901, 2, now(), 't', 'writer');
        INSERT INTO table_refcounts (table_name) VALUES ('t900')""")
    return db


async def insert(db: asyncpg.Connection, table: str, changes: dict[str, str]) -> None:
    row = ROWS[table] | changes
    await db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(row.values())})")


@pytest.mark.parametrize(("table", "changes"), ALLOWED, ids=lambda value: value if isinstance(value, str) else "")
async def test_valid_row_is_accepted(world: asyncpg.Connection, table: str, changes: dict[str, str]) -> None:
    await insert(world, table, changes)


@pytest.mark.parametrize(
    ("table", "check", "changes"), REFUSED, ids=[f"{table}_{check}" for table, check, _ in REFUSED]
)
async def test_check_constraint_refuses_row(
    world: asyncpg.Connection, table: str, check: str, changes: dict[str, str]
) -> None:
    with pytest.raises(asyncpg.CheckViolationError) as caught:
        await insert(world, table, changes)
    assert caught.value.constraint_name == f"{table}_{check}"


async def test_every_check_constraint_is_tested(db: asyncpg.Connection) -> None:
    checks = await db.fetch("SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid <> 0")
    assert {row[0] for row in checks if not row[0].startswith("pg_")} - {
        f"{table}_{check}" for table, check, _ in REFUSED
    } == set()
