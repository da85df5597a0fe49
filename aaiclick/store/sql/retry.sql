-- name: restart_tasks
-- Restart the tasks $1, which did not succeed, and the tasks that were cancelled because of them. Attempts go on
-- counting, failures restart at zero. The tasks are spaced $3 seconds apart, after $5 others. Tasks with unmet
-- predecessors or in a closed group are blocked.
WITH back AS MATERIALIZED (
    SELECT id, status::text AS was FROM tasks
    WHERE id = ANY ($1::bigint[]) AND completed_at IS NOT NULL AND status NOT IN ('COMPLETED', 'SKIPPED')
    UNION
    SELECT id, status::text FROM tasks WHERE job_id = $2 AND cause_id = ANY ($1::bigint[])
),
done AS (
    UPDATE tasks t SET status = 'PENDING', failures = 0, completed_at = NULL, cause_id = NULL,
        cancel_requested_at = NULL, next_retry_at = NULL, updated_at = coalesce($4::timestamptz, now()),
        result = CASE WHEN t.unmet > 0 THEN t.result END, literal = NULL, kwargs = t.kwargs - 'aaiclick_wait',
        available_at = CASE WHEN $3::float8 > 0 AND t.id = ANY ($1::bigint[])
            THEN coalesce($4::timestamptz, now()) + $3::float8 * interval '1 second' * (array_position($1, t.id) - 1 + $5::int)
            END,
        readiness = CASE
            WHEN t.unmet > 0 OR EXISTS (SELECT FROM groups g WHERE g.id = t.group_id AND g.unmet > 0) THEN 'BLOCKED'
            WHEN $3::float8 > 0 AND t.id = ANY ($1::bigint[]) THEN 'TIME'
            WHEN t.concurrency_key IS NOT NULL THEN 'HELD'
            ELSE 'READY' END::task_readiness
    FROM back b WHERE t.id = b.id AND t.id = ANY (ARRAY(SELECT id FROM back))
    RETURNING t.id, t.org_id, t.job_id, t.concurrency_key, t.readiness::text, t.queue, b.was
)
SELECT * FROM done

-- name: list_failed_roots
-- Tasks of the job $1 that did not succeed by themselves: causes of cancelled dependents.
SELECT id, status::text FROM tasks
WHERE job_id = $1 AND completed_at IS NOT NULL AND status NOT IN ('COMPLETED', 'SKIPPED') AND cause_id IS NULL
  AND NOT passed_over

-- name: find_dead_letters
-- Dead letters, oldest first: of the org $1 (NULL: any), the type $2, the error fingerprint $3, the ids $4, at most $5, dead at
-- $6 (NULL: now).
SELECT id, job_id FROM tasks
WHERE status = 'DEAD_LETTER' AND ($1::uuid IS NULL OR org_id = $1) AND ($2::text IS NULL OR type = $2)
  AND ($3::text IS NULL OR error_fingerprint = $3) AND ($4::bigint[] IS NULL OR id = ANY ($4::bigint[]))
  AND ($6::timestamptz IS NULL OR completed_at <= $6)
ORDER BY completed_at, id LIMIT $5

-- name: lock_dead_letters
-- Lock those of the tasks $1 that are dead letters.
SELECT id FROM tasks WHERE id = ANY ($1::bigint[]) AND status = 'DEAD_LETTER' ORDER BY id FOR NO KEY UPDATE

-- name: discard_dead_letters
-- Mark dead letters as FAILED, so that retention may delete them.
UPDATE tasks SET status = 'FAILED', updated_at = now()
WHERE id = ANY (ARRAY(
    SELECT id FROM tasks WHERE status = 'DEAD_LETTER' AND ($1::uuid IS NULL OR org_id = $1) AND ($2::text IS NULL OR type = $2)
      AND ($3::text IS NULL OR error_fingerprint = $3) AND ($4::bigint[] IS NULL OR id = ANY ($4::bigint[]))
    ORDER BY completed_at, id LIMIT $5 FOR UPDATE))
RETURNING id

-- name: reset_tasks
-- Reset the tasks $1 to their initial state; running attempts lose their leases. Counters and readiness are recomputed
-- by the caller.
WITH was AS MATERIALIZED (
    SELECT id, attempt, worker_id, claimed_at, started_at, lease_token, status::text AS status FROM tasks
    WHERE id = ANY ($1::bigint[]) ORDER BY id FOR NO KEY UPDATE
),
history AS (
    INSERT INTO task_attempts (task_id, attempt, charged, outcome, worker_id, claimed_at, started_at, ended_at, error)
    SELECT id, attempt, false, 'RELEASED', worker_id, claimed_at, started_at, coalesce($2::timestamptz, now()),
        'Cleared while it ran.' FROM was WHERE lease_token IS NOT NULL
)
UPDATE tasks t SET status = 'PENDING', readiness = 'BLOCKED', failures = 0, completed_at = NULL, cause_id = NULL,
    passed_over = false, cancel_requested_at = NULL, next_retry_at = NULL, lease_token = NULL, result = NULL, literal = NULL,
    available_at = NULL, kwargs = t.kwargs - 'aaiclick_wait', updated_at = coalesce($2::timestamptz, now())
WHERE t.id = ANY (ARRAY(SELECT id FROM was))

-- name: clear_group_failures
-- Clear the failures of all groups of the job $1, of which the tasks $2 (if any) restart, whatever their cause: the caller
-- then runs `cancel_downstream` for all tasks that have failed, which ends at groups that are marked as failed.
UPDATE groups SET failed_at = NULL, cause_id = NULL
WHERE job_id = $1 AND failed_at IS NOT NULL AND cardinality($2::bigint[]) > 0

-- name: clear_group_skips
-- The groups $1 of the job $2 are no longer skipped.
UPDATE groups SET skipped_at = NULL WHERE id = ANY ($1::bigint[]) AND job_id = $2 AND skipped_at IS NOT NULL

-- name: list_handlers_of_tasks
-- Handlers of the tasks $1.
SELECT DISTINCT next_id AS id FROM dependencies WHERE previous_id = ANY ($1::bigint[]) AND next_type = 'handler'

-- name: list_waiting_handlers
-- Handlers of the job $1 that wait, though all their predecessors have ended.
SELECT id FROM tasks WHERE job_id = $1 AND readiness = 'BLOCKED' AND unmet = 0 AND trigger_rule IN ('failed', 'ended')

-- name: list_unreachable_after_skips
-- Waiting tasks and groups of the job $1 that cannot run, because predecessors of them were skipped.
SELECT t.id, true AS is_task FROM tasks t
WHERE t.job_id = $1 AND t.readiness = 'BLOCKED' AND (t.trigger_rule IN ('failed', 'ended')) IS NOT TRUE AND (
    SELECT CASE WHEN t.trigger_rule = 'any' THEN bool_and(s.skipped) ELSE bool_or(s.skipped AND s.added_by IS DISTINCT FROM t.id) END
    FROM dependencies d CROSS JOIN LATERAL (
        SELECT p.status = 'SKIPPED' AS skipped, p.added_by FROM tasks p WHERE d.previous_type = 'task' AND p.id = d.previous_id
        UNION ALL
        SELECT p.skipped_at IS NOT NULL, NULL FROM groups p WHERE d.previous_type = 'group' AND p.id = d.previous_id) s
    WHERE d.next_id = t.id)
UNION ALL
SELECT g.id, false FROM groups g
WHERE g.job_id = $1 AND num_nonnulls(g.completed_at, g.failed_at, g.skipped_at) = 0 AND (
    EXISTS (SELECT FROM groups p WHERE p.id = g.parent_group_id AND p.skipped_at IS NOT NULL)
    OR EXISTS (
        SELECT FROM dependencies d WHERE d.next_id = g.id AND CASE d.previous_type
            WHEN 'task' THEN EXISTS (SELECT FROM tasks p WHERE p.id = d.previous_id AND p.status = 'SKIPPED')
            ELSE EXISTS (SELECT FROM groups p WHERE p.id = d.previous_id AND p.skipped_at IS NOT NULL) END))

-- name: recount_groups
-- Recompute the counters of the groups of the job $1; repeated until nothing changes, since completed and opened groups
-- change the counts of others.
WITH fresh AS MATERIALIZED (
    SELECT g.id, (
            SELECT count(*) FROM dependencies d WHERE d.next_id = g.id AND NOT CASE d.previous_type
                WHEN 'task' THEN EXISTS (SELECT FROM tasks t WHERE t.id = d.previous_id AND (t.status = 'COMPLETED' OR t.passed_over))
                ELSE EXISTS (SELECT FROM groups p WHERE p.id = d.previous_id AND p.completed_at IS NOT NULL) END
        ) + EXISTS (SELECT FROM groups p WHERE p.id = g.parent_group_id AND (p.unmet > 0 OR p.skipped_at IS NOT NULL))::int AS unmet, (
            SELECT count(*) FROM tasks t
            WHERE t.group_id = g.id AND t.status NOT IN ('COMPLETED', 'SKIPPED') AND NOT t.passed_over) + (
            SELECT count(*) FROM groups c
            WHERE c.parent_group_id = g.id AND num_nonnulls(c.completed_at, c.skipped_at) = 0) AS open
    FROM groups g WHERE g.job_id = $1
)
UPDATE groups g SET unmet = f.unmet, open = f.open,
    completed_at = CASE WHEN f.unmet = 0 AND f.open = 0 AND g.skipped_at IS NULL
        THEN coalesce(g.completed_at, $2::timestamptz, now()) END
FROM fresh f
WHERE g.id = f.id AND (g.unmet <> f.unmet OR g.open <> f.open
    OR (g.completed_at IS NULL) = (f.unmet = 0 AND f.open = 0 AND g.skipped_at IS NULL))
RETURNING g.id

-- name: recount_tasks
-- Recompute the counters of the tasks of the job $1, and whether waiting tasks are blocked. Handlers stay blocked:
-- `start_handlers` decides whether they run.
WITH fresh AS MATERIALIZED (
    SELECT t.id, (
            SELECT count(*) FROM dependencies d WHERE d.next_id = t.id AND NOT CASE
                WHEN d.next_type = 'handler' THEN EXISTS (
                    SELECT FROM tasks p WHERE p.id = d.previous_id AND p.completed_at IS NOT NULL)
                WHEN d.previous_type = 'task' THEN EXISTS (
                    SELECT FROM tasks p WHERE p.id = d.previous_id AND (p.status = 'COMPLETED' OR p.passed_over
                        OR (p.status = 'SKIPPED' AND (t.trigger_rule = 'any' OR p.added_by = t.id))))
                ELSE EXISTS (
                    SELECT FROM groups p WHERE p.id = d.previous_id AND (p.completed_at IS NOT NULL
                        OR (p.skipped_at IS NOT NULL AND t.trigger_rule = 'any'))) END
        ) AS unmet,
        EXISTS (SELECT FROM groups g WHERE g.id = t.group_id AND (g.unmet > 0 OR g.skipped_at IS NOT NULL)) AS closed
    FROM tasks t WHERE t.job_id = $1
)
UPDATE tasks t SET unmet = f.unmet, updated_at = coalesce($2::timestamptz, now()),
    readiness = CASE WHEN t.readiness IS NULL THEN NULL
        WHEN f.unmet > 0 OR f.closed THEN 'BLOCKED'
        WHEN t.readiness <> 'BLOCKED' OR t.trigger_rule IN ('failed', 'ended') THEN t.readiness
        WHEN t.available_at > coalesce($2::timestamptz, now()) THEN 'TIME'
        WHEN t.concurrency_key IS NOT NULL THEN 'HELD'
        ELSE 'READY' END::task_readiness
FROM fresh f
WHERE t.id = f.id AND (t.unmet <> f.unmet OR t.readiness IS NOT NULL)
RETURNING t.org_id, t.concurrency_key, t.queue, t.readiness::text

-- name: recount_job
-- Recompute the counters of the job $1 from its tasks.
WITH fresh AS (
    SELECT count(*) FILTER (WHERE completed_at IS NULL) AS open,
        count(*) FILTER (WHERE completed_at IS NOT NULL AND status IN ('FAILED', 'DEAD_LETTER') AND NOT passed_over) AS failed,
        count(*) FILTER (WHERE status = 'CANCELLED') AS cancelled
    FROM tasks WHERE job_id = $1
),
first AS (
    SELECT left(format('%s (task %s) failed in attempt %s: %s', type, id, attempt,
        split_part(regexp_replace(regexp_replace(error, '^  \+ Exception Group Traceback .*?\n  \| (?=\S)', ''),
            '^.*\n[ \t][^\n]*\n(?=\S)', ''), E'\n', 1)), 1000) AS cause
    FROM tasks WHERE job_id = $1 AND completed_at IS NOT NULL AND status IN ('FAILED', 'DEAD_LETTER') AND NOT passed_over
    ORDER BY completed_at, id LIMIT 1
)
UPDATE jobs j SET open_tasks = f.open, failed_tasks = f.failed, cancelled_tasks = f.cancelled,
    cancel_requested_at = CASE WHEN f.open = 0 THEN j.cancel_requested_at END,
    error = CASE WHEN f.open = 0 THEN j.error ELSE coalesce((SELECT cause FROM first), (
        SELECT format('Event %s could not be routed. See: aaiclick events ls', o.id) FROM outbox o
        WHERE o.job_id = j.id AND o.status = 'Failed' ORDER BY o.id LIMIT 1)) END,
    status = CASE WHEN f.open > 0 OR j.open_events > 0 THEN
            CASE WHEN j.started_at IS NULL THEN 'PENDING' ELSE 'RUNNING' END
        WHEN f.failed > 0 OR j.error IS NOT NULL THEN 'FAILED' WHEN f.cancelled > 0 THEN 'CANCELLED'
        ELSE 'COMPLETED' END::job_status,
    restarted_at = CASE WHEN f.open > 0 AND j.completed_at IS NOT NULL THEN coalesce($2::timestamptz, now())
        ELSE j.restarted_at END,
    completed_at = CASE WHEN f.open = 0 AND j.open_events = 0
        THEN coalesce(j.completed_at, $2::timestamptz, now()) END,
    deadline_at = CASE WHEN f.open > 0 THEN coalesce($2::timestamptz, now()) + j.timeout_seconds * interval '1 second'
        ELSE j.deadline_at END
FROM fresh f WHERE j.id = $1
RETURNING j.status::text

-- name: load_kwargs_with_references
-- Arguments of those of the tasks $1 that refer to tables or to results of other tasks.
SELECT id, kwargs::text AS kwargs FROM tasks WHERE id = ANY ($1::bigint[]) AND kwargs::text LIKE '%"object_type"%'

-- name: list_undone_steps
-- Completed steps of the job $1 of which the compensation has begun (compensators have the entrypoint $2), if the tasks
-- $3 are to be restarted. None if those are handlers and tasks that handlers have added: they go on. Compensations are in
-- the reverse order of the completions, and so are their ids.
WITH RECURSIVE adders (root, added_by, is_handler) AS (
    SELECT id, added_by, coalesce(trigger_rule IN ('failed', 'ended'), false) FROM tasks WHERE id = ANY ($3::bigint[])
    UNION ALL
    SELECT a.root, t.added_by, coalesce(t.trigger_rule IN ('failed', 'ended'), false)
    FROM adders a CROSS JOIN LATERAL (
        SELECT t.added_by, t.trigger_rule FROM tasks t WHERE t.id = a.added_by OFFSET 0) t
)
SELECT s.id FROM tasks c CROSS JOIN LATERAL (
    SELECT s.id, row_number() OVER (ORDER BY s.completed_at DESC, s.id DESC) AS position
    FROM jsonb_array_elements(c.kwargs -> 'steps') AS e (step) CROSS JOIN LATERAL (
        SELECT s.id, s.completed_at FROM tasks s
        WHERE s.id = (e.step ->> 'task_id')::bigint AND s.job_id = $1 AND s.status = 'COMPLETED' OFFSET 0) s
) s CROSS JOIN LATERAL (
    SELECT u.attempt, row_number() OVER (ORDER BY u.id) AS position
    FROM task_additions a CROSS JOIN LATERAL unnest(a.tasks) AS added (id) CROSS JOIN LATERAL (
        SELECT u.id, u.attempt FROM tasks u WHERE u.id = added.id OFFSET 0) u
    WHERE a.task_id = c.id AND a.attempt = c.attempt
) u
WHERE c.job_id = $1 AND c.entrypoint = $2 AND c.status = 'COMPLETED' AND u.position = s.position AND u.attempt > 0
  AND EXISTS (SELECT FROM adders GROUP BY root HAVING NOT bool_or(is_handler))
ORDER BY s.id
