-- name: renew_leases
-- Extend leases; returns the valid ones and which of them have a cancellation request. Locked rows are skipped until
-- the next heartbeat, so a heartbeat never waits.
WITH given AS (SELECT * FROM unnest($1::bigint[], $2::int[], $3::uuid[]) AS g (id, attempt, token)),
mine AS MATERIALIZED (
    SELECT g.id, t.cancelled FROM given g CROSS JOIN LATERAL (
        SELECT t.cancel_requested_at IS NOT NULL AS cancelled FROM tasks t
        WHERE t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token OFFSET 0) t
),
free AS MATERIALIZED (
    SELECT g.id FROM given g CROSS JOIN LATERAL (
        SELECT FROM tasks t WHERE t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token
        FOR NO KEY UPDATE SKIP LOCKED) t
),
extended AS (
    UPDATE tasks SET lease_expires_at = coalesce($5::timestamptz, now()) + coalesce(lease_seconds, $4::float8) * interval '1 second',
        last_heartbeat = coalesce($5::timestamptz, now()), updated_at = coalesce($5::timestamptz, now())
    WHERE id = ANY (ARRAY(SELECT id FROM free))
)
SELECT id, cancelled FROM mine
