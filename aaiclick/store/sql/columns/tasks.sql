id, org_id, created_at, updated_at, status, attempt, failures, max_attempts, unmet, priority, followed, critical, passed_over, readiness,
job_id, group_id, worker_id, lease_token, lease_expires_at, last_heartbeat, available_at, next_retry_at, claimed_at,
started_at, completed_at, cancel_requested_at, cause_id, added_by, definition_id, timeout_seconds, lease_seconds, concurrency_limit,
depth, queue, type, entrypoint, kwargs, retry_policy, idempotency_key, dedupe_key, concurrency_key, partitions,
input_versions, result, outputs, error, error_fingerprint, log_path
