-- The supervisor of the workers $1 says that they live: all their leases last $2 seconds more,
-- or as long as the task says. A row that is locked is being
-- ended this moment and is left alone. Who was taken for dead, having been silent for long, is alive again; who has said that it
-- stopped is not, though this may be heard later than that.
WITH beat AS (
    UPDATE workers SET last_heartbeat = now(), stopped_at = NULL,
        status = CASE WHEN status = 'STOPPED' THEN 'ACTIVE' ELSE status END
    WHERE id = ANY ($1::bigint[])
      AND (status <> 'STOPPED' OR stopped_at > last_heartbeat + $2::float8 / 2 * interval '1 second')
),
held AS MATERIALIZED (
    SELECT id FROM tasks WHERE worker_id = ANY ($1::bigint[]) AND status IN ('CLAIMED', 'RUNNING')
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks SET lease_expires_at = now() + coalesce(lease_seconds, $2::float8) * interval '1 second', last_heartbeat = now(), updated_at = now()
WHERE id = ANY (ARRAY(SELECT id FROM held)) AND status IN ('CLAIMED', 'RUNNING')
