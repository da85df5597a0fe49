id, org_id, created_at, updated_at, status, total_tasks, open_tasks, failed_tasks, cancelled_tasks, open_events, name,
definition_id, dag_version_id, trigger, idempotency_key, timeout_seconds, deadline_at, cancel_requested_at, paused_at,
started_at, restarted_at, completed_at, cause_id, error
