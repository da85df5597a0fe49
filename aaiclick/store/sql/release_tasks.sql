-- name: release_tasks
-- Release leases, uncharged. The tasks are ready again at once; one that was running and was released $5 times in a row
-- is delayed, twice as long each time, up to $6 seconds.
WITH given AS (
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::uuid[]) AS g (id, attempt, token)
),
judged AS MATERIALIZED (
    SELECT t.id, (SELECT w.log_directory || '/' || t.id || '.log' FROM workers w WHERE w.id = t.worker_id) AS log_path,
        t.worker_id, t.claimed_at, t.started_at, t.cancel_requested_at IS NOT NULL AS cancelled,
        CASE WHEN t.started_at IS NOT NULL AND r.times >= $5::int
            THEN least(power(2::float8, least(r.times - $5::int, 62)), $6::float8) ELSE 0 END AS delay
    FROM given g CROSS JOIN LATERAL (
        SELECT * FROM tasks t WHERE t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token
        FOR NO KEY UPDATE) t
    CROSS JOIN LATERAL (
        SELECT count(*) AS times FROM task_attempts a
        WHERE a.task_id = t.id AND a.started_at IS NOT NULL AND a.attempt > coalesce((
            SELECT max(c.attempt) FROM task_attempts c WHERE c.task_id = t.id AND c.charged), 0)) r
),
freed AS (
    UPDATE tasks t SET
        status = CASE WHEN j.cancelled THEN 'CANCELLED' ELSE 'PENDING' END::task_status,
        readiness = CASE WHEN j.cancelled THEN NULL WHEN j.delay > 0 THEN 'TIME' ELSE 'READY' END::task_readiness,
        available_at = CASE WHEN j.delay > 0 AND NOT j.cancelled
            THEN coalesce($4::timestamptz, now()) + j.delay * interval '1 second' ELSE t.available_at END,
        completed_at = CASE WHEN j.cancelled THEN coalesce($4::timestamptz, now()) END,
        lease_token = NULL, updated_at = coalesce($4::timestamptz, now())
    FROM judged j WHERE t.id = j.id AND t.id = ANY (ARRAY(SELECT id FROM judged))
    RETURNING t.id, t.attempt, t.org_id, t.job_id, t.group_id, t.has_dependents, t.concurrency_key, t.status::text, t.queue, t.passed_over,
        j.worker_id, j.claimed_at, j.started_at, j.log_path
),
history AS (
    INSERT INTO task_attempts (task_id, attempt, charged, outcome, worker_id, claimed_at, started_at, ended_at,
        log_path)
    SELECT id, attempt, false, CASE status WHEN 'CANCELLED' THEN 'CANCELLED' ELSE 'RELEASED' END::attempt_outcome,
        worker_id, claimed_at, started_at, coalesce($4::timestamptz, now()), log_path FROM freed
)
SELECT id, org_id, job_id, group_id, has_dependents, concurrency_key, status, queue, passed_over FROM freed
