-- Heartbeats of the future: PostgreSQL's clock was set back since. They count as sent now, and their leases last as long
-- from now as they did from then, so a dead worker's lease expires at most one lease later. A live worker's next
-- heartbeat does the same. A transaction that began a moment after this one is not of the future, hence the second.
WITH heard AS (
    UPDATE workers SET last_heartbeat = coalesce($1::timestamptz, now())
    WHERE status <> 'STOPPED' AND last_heartbeat > coalesce($1::timestamptz, now()) + interval '1 second'
),
ahead AS MATERIALIZED (
    SELECT id FROM tasks WHERE status IN ('CLAIMED', 'RUNNING')
      AND last_heartbeat > coalesce($1::timestamptz, now()) + interval '1 second'
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks SET lease_expires_at = coalesce($1::timestamptz, now()) + (lease_expires_at - last_heartbeat),
    last_heartbeat = coalesce($1::timestamptz, now()), updated_at = coalesce($1::timestamptz, now())
WHERE id = ANY (ARRAY(SELECT id FROM ahead)) AND status IN ('CLAIMED', 'RUNNING')
RETURNING id
