-- Tell tasks that $1 (tasks and groups) have completed and that the groups $2 have opened. A task is ready when its own
-- count and its group's are zero; then it waits for its time, for a slot of its key, or for a worker.
WITH met AS MATERIALIZED (
    SELECT d.next_id AS id, count(*)::int AS met FROM dependencies d
    WHERE d.previous_id = ANY ($1::bigint[]) AND d.next_type = 'task' GROUP BY d.next_id
),
touched AS MATERIALIZED (
    SELECT id, met FROM met
    UNION ALL
    SELECT t.id, 0 FROM tasks t
    WHERE t.group_id = ANY ($2::bigint[]) AND t.readiness = 'BLOCKED' AND t.unmet = 0
      AND t.id NOT IN (SELECT id FROM met)
),
locked AS MATERIALIZED (
    SELECT t.id, coalesce(g.unmet, 0) = 0 AS group_open FROM tasks t LEFT JOIN groups g ON g.id = t.group_id
    WHERE t.id = ANY (ARRAY(SELECT id FROM touched)) ORDER BY t.id FOR NO KEY UPDATE OF t
),
told AS (
    UPDATE tasks t SET unmet = t.unmet - c.met, updated_at = coalesce($3::timestamptz, now()),
        readiness = CASE WHEN t.readiness IS DISTINCT FROM 'BLOCKED' OR t.unmet > c.met OR NOT l.group_open
                THEN t.readiness
            WHEN t.available_at > coalesce($3::timestamptz, now()) THEN 'TIME'
            WHEN t.concurrency_key IS NOT NULL THEN 'HELD'
            ELSE 'READY' END
    FROM touched c JOIN locked l ON l.id = c.id WHERE t.id = c.id
    RETURNING t.queue, t.org_id, t.concurrency_key, t.readiness
)
SELECT queue, org_id, concurrency_key, readiness::text FROM told
WHERE readiness IN ('READY', 'HELD') GROUP BY queue, org_id, concurrency_key, readiness
