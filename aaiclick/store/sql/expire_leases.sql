-- Leases of the workers $1 run out now: they are dead. A row that is locked is being ended, or its lease ends by itself.
WITH held AS MATERIALIZED (
    SELECT id FROM tasks WHERE worker_id = ANY ($1::bigint[]) AND status IN ('CLAIMED', 'RUNNING')
      AND lease_expires_at > coalesce($2::timestamptz, now())
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks SET lease_expires_at = coalesce($2::timestamptz, now()), updated_at = coalesce($2::timestamptz, now())
WHERE id = ANY (ARRAY(SELECT id FROM held))
