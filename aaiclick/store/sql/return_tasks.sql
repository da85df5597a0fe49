-- A leased task has run and returned tasks ($6 of them): it waits again, for those, with the form of its result.
UPDATE tasks t SET status = 'PENDING', readiness = 'BLOCKED', unmet = $6::int, lease_token = NULL, result = $4::jsonb,
    started_at = coalesce(coalesce($7::timestamptz, now()) - $5::float8 * interval '1 second', t.started_at),
    error = NULL, error_fingerprint = NULL,
    updated_at = coalesce($7::timestamptz, now())
WHERE t.id = $1 AND t.attempt = $2 AND t.lease_token = $3
RETURNING t.id, t.org_id, t.job_id, t.group_id, t.followed, t.concurrency_key, 'RETURNED' AS status, t.queue, t.passed_over,
    false AS gates, t.attempt, true AS stale
