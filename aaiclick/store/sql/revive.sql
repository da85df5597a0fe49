-- The tasks $1, which ended without success, start over; with them what was cancelled because of them. Attempts go on
-- counting, failures start at none. They begin $3 seconds apart, behind $5 others. Who has a predecessor that has not completed, or lies in a closed group, is blocked.
WITH back AS MATERIALIZED (
    SELECT id, status::text AS was FROM tasks
    WHERE id = ANY ($1::bigint[]) AND completed_at IS NOT NULL AND status <> 'COMPLETED'
    UNION
    SELECT id, status::text FROM tasks WHERE job_id = $2 AND cause_id = ANY ($1::bigint[])
),
done AS (
    UPDATE tasks t SET status = 'PENDING', failures = 0, completed_at = NULL, cause_id = NULL,
        cancel_requested_at = NULL, next_retry_at = NULL, updated_at = coalesce($4::timestamptz, now()),
        result = CASE WHEN t.unmet > 0 THEN t.result END,
        available_at = CASE WHEN $3::float8 > 0 AND t.id = ANY ($1::bigint[])
            THEN coalesce($4::timestamptz, now()) + $3::float8 * interval '1 second' * (array_position($1, t.id) - 1 + $5::int)
            END,
        readiness = CASE
            WHEN t.unmet > 0 OR EXISTS (SELECT FROM groups g WHERE g.id = t.group_id AND g.unmet > 0) THEN 'BLOCKED'
            WHEN $3::float8 > 0 AND t.id = ANY ($1::bigint[]) THEN 'TIME'
            WHEN t.concurrency_key IS NOT NULL THEN 'HELD'
            ELSE 'READY' END::task_readiness
    FROM back b WHERE t.id = b.id AND t.id = ANY (ARRAY(SELECT id FROM back))
    RETURNING t.id, t.org_id, t.job_id, t.concurrency_key, t.readiness::text, t.queue, b.was
)
SELECT * FROM done
