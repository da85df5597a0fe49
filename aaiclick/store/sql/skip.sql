-- name: list_branches
-- Dependents of the task $1 that it can choose: those it was submitted with, except handlers.
SELECT d.next_id AS id, d.next_type = 'task' AS is_task, n.name FROM dependencies d CROSS JOIN LATERAL (
    SELECT t.type AS name, t.added_by FROM tasks t WHERE d.next_type = 'task' AND t.id = d.next_id
    UNION ALL
    SELECT g.name, g.added_by FROM groups g WHERE d.next_type = 'group' AND g.id = d.next_id OFFSET 0) n
WHERE d.previous_id = $1 AND d.next_type < 'handler' AND n.added_by IS DISTINCT FROM $1

-- name: skip_tasks
-- Skip the waiting tasks $1, and the groups $2 with all their members. Returns them, with the groups that contain them.
WITH RECURSIVE closed (id) AS (
    SELECT unnest($2::bigint[])
    UNION
    SELECT g.id FROM closed c CROSS JOIN LATERAL (
        SELECT g.id FROM groups g WHERE g.parent_group_id = c.id OFFSET 0) g
),
marked AS (
    UPDATE groups SET skipped_at = coalesce($3::timestamptz, now())
    WHERE id = ANY (ARRAY(SELECT id FROM closed)) AND num_nonnulls(completed_at, failed_at, skipped_at) = 0
    RETURNING id, parent_group_id, job_id
),
locked AS MATERIALIZED (
    SELECT id FROM tasks WHERE id = ANY ($1::bigint[] || ARRAY(
        SELECT t.id FROM marked m CROSS JOIN LATERAL (SELECT t.id FROM tasks t WHERE t.group_id = m.id OFFSET 0) t))
    ORDER BY id FOR NO KEY UPDATE
),
gone AS (
    UPDATE tasks SET status = 'SKIPPED', readiness = NULL, next_retry_at = NULL,
        completed_at = coalesce($3::timestamptz, now()), updated_at = coalesce($3::timestamptz, now())
    WHERE id = ANY (ARRAY(SELECT id FROM locked)) AND readiness IS NOT NULL
    RETURNING id, group_id, job_id, has_dependents
)
SELECT id, true AS is_task, group_id, job_id, has_dependents FROM gone
UNION ALL
SELECT id, false, parent_group_id, job_id, true FROM marked

-- name: list_skip_effects
-- Direct dependents of the skipped tasks and groups $1: by how many of them they have one unmet predecessor less, and
-- whether they are skipped too. A join with the rule `any` counts skipped predecessors as met, and is skipped with the
-- last of them; a task that returned a skipped task counts it as completed.
SELECT d.next_id AS id, d.next_type = 'task' AS is_task,
    count(*) FILTER (WHERE d.next_type = 'task' AND (t.joins_any OR d.is_returned))::int AS met,
    bool_or(d.next_type = 'group' OR (NOT d.is_returned AND (NOT t.joins_any OR coalesce(t.all_skipped, false)))) AS skipped
FROM unnest($1::bigint[]) AS s (id) CROSS JOIN LATERAL (
    SELECT d.next_id, d.next_type, coalesce((
        SELECT p.added_by = d.next_id FROM tasks p WHERE p.id = s.id), false) AS is_returned
    FROM dependencies d WHERE d.previous_id = s.id AND d.next_type < 'handler' OFFSET 0) d
LEFT JOIN LATERAL (
    SELECT coalesce(t.trigger_rule = 'any', false) AS joins_any, CASE WHEN t.trigger_rule = 'any' THEN (
        SELECT bool_and(CASE e.previous_type
            WHEN 'task' THEN coalesce((SELECT p.status = 'SKIPPED' FROM tasks p WHERE p.id = e.previous_id), true)
            ELSE coalesce((SELECT p.skipped_at IS NOT NULL FROM groups p WHERE p.id = e.previous_id), true) END)
        FROM dependencies e WHERE e.next_id = t.id) END AS all_skipped
    FROM tasks t WHERE d.next_type = 'task' AND t.id = d.next_id OFFSET 0) t ON true
GROUP BY d.next_id, d.next_type

-- name: advance_handlers
-- Advance handlers after the tasks $1 have ended in any way; the handlers $2 have one predecessor less. Returns those
-- that wait for nothing more.
WITH met AS MATERIALIZED (
    SELECT id, count(*)::int AS met FROM (
        SELECT d.next_id AS id FROM dependencies d WHERE d.previous_id = ANY ($1::bigint[]) AND d.next_type = 'handler'
        UNION ALL SELECT unnest($2::bigint[])) AS parts GROUP BY id
),
locked AS MATERIALIZED (
    SELECT t.id FROM tasks t WHERE t.id = ANY (ARRAY(SELECT id FROM met)) ORDER BY t.id FOR NO KEY UPDATE OF t
),
counted AS (
    UPDATE tasks t SET unmet = t.unmet - m.met, updated_at = coalesce($3::timestamptz, now())
    FROM met m WHERE t.id = ANY (ARRAY(SELECT id FROM locked)) AND t.id = m.id
    RETURNING t.id, t.unmet, t.readiness
)
SELECT id FROM counted WHERE unmet = 0 AND readiness = 'BLOCKED'

-- name: start_handlers
-- Start the handlers $1: all their predecessors have ended. One with the rule `failed` runs if a predecessor failed, or
-- was cancelled with a job that exceeded a limit; else it is returned with `skipped`. The first failure replaces the
-- argument that is marked as such.
WITH judged AS MATERIALIZED (
    SELECT t.id, f.failure, t.trigger_rule = 'failed' AND f.failure IS NULL AS skipped
    FROM unnest($1::bigint[]) AS given (id) CROSS JOIN LATERAL (
        SELECT t.id, t.job_id, t.trigger_rule FROM tasks t
        WHERE t.id = given.id AND t.readiness = 'BLOCKED' AND t.unmet = 0 OFFSET 0) t
    LEFT JOIN LATERAL (
        SELECT jsonb_build_object('object_type', 'failure', 'task_id', p.id::text, 'type', p.type, 'status', p.status,
            'critical', p.critical, 'attempt', p.attempt, 'error', coalesce(CASE WHEN p.status = 'CANCELLED' THEN j.error ELSE p.error END, '')) AS failure
        FROM dependencies d CROSS JOIN LATERAL (
            SELECT * FROM tasks p WHERE p.id = d.previous_id AND p.completed_at IS NOT NULL OFFSET 0) p
        LEFT JOIN LATERAL (
            SELECT j.error, j.cancel_requested_at, j.failed_tasks FROM jobs j WHERE j.id = p.job_id OFFSET 0) j ON true
        WHERE d.next_id = t.id AND (p.status IN ('FAILED', 'DEAD_LETTER')
            OR (p.status = 'CANCELLED' AND j.cancel_requested_at IS NOT NULL AND j.error IS NOT NULL AND j.failed_tasks = 0))
        ORDER BY p.status = 'CANCELLED', NOT p.critical, p.completed_at, p.id LIMIT 1) f ON true
)
UPDATE tasks t SET readiness = CASE WHEN j.skipped THEN t.readiness
        WHEN t.available_at > coalesce($2::timestamptz, now()) THEN 'TIME'
        WHEN t.concurrency_key IS NOT NULL THEN 'HELD' ELSE 'READY' END::task_readiness,
    kwargs = coalesce((
        SELECT jsonb_object_agg(k.name, CASE WHEN k.argument @> '{"object_type": "failure"}'
            THEN coalesce(j.failure, '{"object_type": "failure"}') ELSE k.argument END)
        FROM jsonb_each(t.kwargs) AS k (name, argument)), '{}'),
    updated_at = coalesce($2::timestamptz, now())
FROM judged j WHERE t.id = ANY (ARRAY(SELECT id FROM judged)) AND t.id = j.id
RETURNING t.id, t.org_id, t.queue, t.concurrency_key, t.readiness::text, j.skipped

-- name: add_handler_predecessors
-- The handlers of the task $1 also wait for the tasks $2, which it has added.
WITH handler AS MATERIALIZED (
    SELECT d.next_id AS id FROM dependencies d
    WHERE d.previous_id = $1 AND d.next_type = 'handler' AND d.next_id <> ALL ($2::bigint[])
),
added AS (
    INSERT INTO dependencies (previous_id, next_id, previous_type, next_type)
    SELECT u.id, h.id, 'task', 'handler' FROM handler h CROSS JOIN unnest($2::bigint[]) AS u (id)
),
counted AS (
    UPDATE tasks SET unmet = unmet + cardinality($2::bigint[]), updated_at = now() WHERE id = ANY (ARRAY(SELECT id FROM handler))
)
UPDATE tasks SET has_dependents = true, updated_at = now() WHERE id = ANY ($2::bigint[]) AND EXISTS (SELECT FROM handler)
