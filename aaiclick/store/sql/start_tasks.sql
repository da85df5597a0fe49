-- name: start_tasks
-- Mark claimed tasks as RUNNING. Tasks that run already are accepted unchanged.
WITH given AS (SELECT * FROM unnest($1::bigint[], $2::int[], $3::uuid[]) AS g (id, attempt, token)),
mine AS MATERIALIZED (
    SELECT g.id FROM given g CROSS JOIN LATERAL (
        SELECT FROM tasks t WHERE t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token
        FOR NO KEY UPDATE) t
),
begun AS (
    UPDATE tasks SET status = 'RUNNING', started_at = coalesce($4::timestamptz, now()), updated_at = now()
    WHERE id = ANY (ARRAY(SELECT id FROM mine)) AND status = 'CLAIMED'
)
SELECT id FROM mine
