-- Workers that have been silent for $1 seconds count as stopped; safe to run by several at once.
WITH silent AS MATERIALIZED (
    SELECT id FROM workers
    WHERE status <> 'STOPPED'
      AND last_heartbeat < coalesce($2::timestamptz, now()) - $1::float8 * interval '1 second'
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE workers SET status = 'STOPPED', stopped_at = coalesce($2::timestamptz, now()), is_leader = false,
    leader_until = NULL
WHERE id = ANY (ARRAY(SELECT id FROM silent)) RETURNING id
