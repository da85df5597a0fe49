-- name: advance_tasks
-- Advance tasks after $1 (tasks and groups) have completed and the groups $2 have opened; the tasks $4 have one
-- predecessor less. A task becomes TIME, HELD (concurrency key) or READY if its own count and its group's are zero. A
-- task that has run and returned tasks completes instead: those rows have an id.
WITH met AS MATERIALIZED (
    SELECT id, count(*)::int AS met FROM (
        SELECT d.next_id AS id FROM dependencies d WHERE d.previous_id = ANY ($1::bigint[]) AND d.next_type = 'task'
        UNION ALL SELECT unnest($4::bigint[])) AS parts GROUP BY id
),
touched AS MATERIALIZED (
    SELECT id, met FROM met
    UNION ALL
    SELECT t.id, 0 FROM tasks t
    WHERE t.group_id = ANY ($2::bigint[]) AND t.readiness = 'BLOCKED' AND t.unmet = 0
      AND t.id NOT IN (SELECT id FROM met)
),
locked AS MATERIALIZED (
    SELECT t.id, coalesce((SELECT g.unmet FROM groups g WHERE g.id = t.group_id), 0) = 0 AS group_open,
        t.readiness = 'BLOCKED' AND t.result IS NOT NULL AS returned
    FROM tasks t WHERE t.id = ANY (ARRAY(SELECT id FROM touched)) ORDER BY t.id FOR NO KEY UPDATE OF t
),
told AS (
    UPDATE tasks t SET unmet = t.unmet - c.met, updated_at = coalesce($3::timestamptz, now()),
        status = CASE WHEN l.returned AND t.unmet = c.met THEN 'COMPLETED' ELSE t.status END,
        completed_at = CASE WHEN l.returned AND t.unmet = c.met THEN coalesce($3::timestamptz, now())
            ELSE t.completed_at END,
        readiness = CASE WHEN l.returned AND t.unmet = c.met THEN NULL
            WHEN t.readiness IS DISTINCT FROM 'BLOCKED' OR t.unmet > c.met OR NOT l.group_open
                THEN t.readiness
            WHEN t.available_at > coalesce($3::timestamptz, now()) THEN 'TIME'
            WHEN t.concurrency_key IS NOT NULL THEN 'HELD'
            ELSE 'READY' END
    FROM touched c JOIN locked l ON l.id = c.id WHERE t.id = ANY (ARRAY(SELECT id FROM locked)) AND t.id = c.id
    RETURNING t.id, t.job_id, t.group_id, t.has_dependents, t.queue, t.org_id, t.concurrency_key, t.readiness, t.passed_over,
        t.readiness IS NULL AND l.returned AS finished
)
SELECT NULL::bigint AS id, NULL::bigint AS job_id, NULL::bigint AS group_id, false AS has_dependents, false AS gates, queue,
    org_id, concurrency_key, readiness::text, false AS passed_over FROM told
WHERE readiness IN ('READY', 'HELD') GROUP BY queue, org_id, concurrency_key, readiness
UNION ALL
SELECT id, job_id, group_id, has_dependents, has_dependents AND coalesce((
    SELECT true FROM dependencies d WHERE d.previous_id = told.id AND d.next_type > 'task' LIMIT 1), false), queue, org_id,
    concurrency_key, NULL, passed_over FROM told WHERE finished
