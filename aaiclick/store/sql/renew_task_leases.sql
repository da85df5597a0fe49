-- Renew the leases that tasks of the workers $1 set themselves and that have used up a third of their time. A locked row is being
-- ended and is left alone.
WITH due AS MATERIALIZED (
    SELECT id FROM tasks WHERE worker_id = ANY ($1::bigint[]) AND status IN ('CLAIMED', 'RUNNING')
      AND lease_expires_at < now() + lease_seconds * interval '1 second' * 2 / 3
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks SET lease_expires_at = now() + lease_seconds * interval '1 second', last_heartbeat = now(), updated_at = now()
WHERE id = ANY (ARRAY(SELECT id FROM due)) AND status IN ('CLAIMED', 'RUNNING')
