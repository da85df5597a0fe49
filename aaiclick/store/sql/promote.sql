-- Make due tasks ready, the longest due first; those with a concurrency key line up for a slot.
WITH due AS MATERIALIZED (
    SELECT id FROM tasks WHERE readiness = 'TIME' AND available_at <= coalesce($2::timestamptz, now())
    ORDER BY available_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks SET status = 'PENDING', next_retry_at = NULL, updated_at = coalesce($2::timestamptz, now()),
    readiness = CASE WHEN concurrency_key IS NULL THEN 'READY' ELSE 'HELD' END::task_readiness
WHERE id = ANY (ARRAY(SELECT id FROM due))
RETURNING queue, org_id, concurrency_key, readiness
