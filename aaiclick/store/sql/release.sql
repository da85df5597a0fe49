-- Give leases back unfinished: the tasks are ready again at once, and not charged.
WITH given AS (
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::uuid[]) AS g (id, attempt, token)
),
judged AS MATERIALIZED (
    SELECT t.id, t.log_path, t.worker_id, t.claimed_at, t.started_at, t.cancel_requested_at IS NOT NULL AS cancelled
    FROM given g CROSS JOIN LATERAL (
        SELECT * FROM tasks t WHERE t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token
        FOR NO KEY UPDATE) t
),
freed AS (
    UPDATE tasks t SET
        status = CASE WHEN j.cancelled THEN 'CANCELLED' ELSE 'PENDING' END::task_status,
        readiness = CASE WHEN j.cancelled THEN NULL ELSE 'READY' END::task_readiness,
        completed_at = CASE WHEN j.cancelled THEN coalesce($4::timestamptz, now()) END,
        lease_token = NULL, updated_at = coalesce($4::timestamptz, now())
    FROM judged j WHERE t.id = j.id AND t.id = ANY (ARRAY(SELECT id FROM judged))
    RETURNING t.id, t.attempt, t.org_id, t.job_id, t.group_id, t.followed, t.concurrency_key, t.status::text, t.queue,
        j.worker_id, j.claimed_at, j.started_at, j.log_path
),
history AS (
    INSERT INTO task_attempts (task_id, attempt, charged, outcome, worker_id, claimed_at, started_at, ended_at,
        log_path)
    SELECT id, attempt, false, CASE status WHEN 'CANCELLED' THEN 'CANCELLED' ELSE 'RELEASED' END::attempt_outcome,
        worker_id, claimed_at, started_at, coalesce($4::timestamptz, now()), log_path FROM freed
)
SELECT id, org_id, job_id, group_id, followed, concurrency_key, status, queue FROM freed
