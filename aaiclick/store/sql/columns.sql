-- name: jobs
id, org_id, created_at, updated_at, status, total_tasks, open_tasks, failed_tasks, cancelled_tasks, open_events, has_waiters,
name, definition_id, dag_version_id, schedule_id, parent_job_id, parent_task_id, trigger, tags, concurrency, policy, idempotency_key, timeout_seconds, deadline_at, due_at, missed_at,
cancel_requested_at, paused_at,
started_at, restarted_at, completed_at, cause_id, error

-- name: data_test_results
id, org_id, subject, dataset_uuid, partition_key, task_id, job_id, attempt, tested_at, number, test, on_failure, outcome, rows,
failing_rows, message, sample_table, published, latest

-- name: schedule_fields
-- Columns of `ScheduleFields`, in the order of its fields.
entrypoint text, job_name text, item_type text, kwargs jsonb, options jsonb, cron text, every_seconds float8,
timezone text, missed text, max_missed integer, overlap text, nominal_parameter text, nominal_type text,
timeout_seconds float8, declared_in text

-- name: incidents
id, org_id, opened_at, last_at, count, rule, fingerprint, severity, title, cause, dag_name, job_name, task_type,
error_fingerprint, tags, job_id, task_id, acknowledged_at, acknowledged_by, snoozed_until, escalated_at, closed_at, closed_by

-- name: notification_channels
org_id, name, created_at, updated_at, channel_type, config, roles, digest_seconds, quiet_from, quiet_until, timezone

-- name: notification_rules
org_id, name, created_at, updated_at, rules, min_severity, dag_name, job_name, task_type, tag, channels,
escalate_after_seconds, escalate_to

-- name: schedules
id, org_id, name, {schedule_fields.*}, anchor_at, next_run_at, due_at, paused_at, missing_at, last_nominal_at,
last_run_id, skipped, error, created_at, updated_at

-- name: job_function_fields
-- Columns of `JobFunctionFields`, in the order of its fields.
entrypoint text, module text, name text, documentation text, parameters jsonb, schedule text, timeout_seconds float8,
tags jsonb, owner text, code_version text, policy jsonb

-- name: job_functions
org_id, {job_function_fields.*}, registered_at

-- name: task_attempts
task_id, attempt, charged, outcome, worker_id, claimed_at, started_at, ended_at, error, error_fingerprint, log_path

-- name: task_options
-- Columns of `TaskOptions`, in the order of its fields.
max_attempts integer, queue text, priority smallint, timeout_seconds float8, lease_seconds float8, retry_policy jsonb,
available_at timestamptz, concurrency_key text, concurrency_limit integer, critical boolean,
trigger_rule trigger_rule, repeatable boolean, rate text, rate_key text

-- name: tasks
id, org_id, created_at, updated_at, status, attempt, failures, unmet, has_dependents, passed_over, readiness, job_id,
group_id, worker_id, lease_token, lease_expires_at, last_heartbeat, next_retry_at, claimed_at, started_at, completed_at,
cancel_requested_at, cause_id, added_by, cached_from, definition_id, depth, type, entrypoint, kwargs, idempotency_key, dedupe_key,
partitions, input_versions, result, outputs, error, error_fingerprint, tasks.log_path, {task_options.*}

-- name: workers
id, started_at, last_heartbeat, stopped_at, tasks_completed, tasks_failed, pid, pool_size, status, is_leader,
leader_until, leader_term, hostname, version, queues, org_id, drain_requested_at, log_directory,
code_version, code_modules
