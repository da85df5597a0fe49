-- name: lock_job
-- Take the exclusive graph lock of one job.
SELECT pg_advisory_xact_lock($1)

-- name: lock_job_of_task
-- Share the graph lock of the job of the task $1: a cancellation takes it exclusively, before it locks tasks.
SELECT pg_advisory_xact_lock_shared(t.job_id) FROM (SELECT job_id FROM tasks WHERE id = $1 AND job_id IS NOT NULL OFFSET 0) AS t

-- name: lock_jobs
-- Take the graph locks of the jobs of the tasks $1, in the order of ids; docs/internals/engine.md explains what they
-- protect. Shared where a completion touches tasks only; exclusive where it touches groups or handlers, where it may complete the
-- task that returned it, or if $2. The commit is asynchronous, so that locks are released early: `flush_wal` waits for
-- the disk.
SELECT job_id, exclusive, set_config('synchronous_commit', 'off', true), CASE WHEN exclusive THEN pg_advisory_xact_lock(job_id) IS NULL
                      ELSE pg_advisory_xact_lock_shared(job_id) IS NULL END
FROM (
    -- Not EXISTS, which may be planned as a hash of the whole table.
    SELECT t.job_id, bool_or($2 OR t.group_id IS NOT NULL OR coalesce((
        SELECT true FROM dependencies d WHERE d.previous_id = t.id AND d.next_type > 'task' LIMIT 1), false)
        OR CASE WHEN t.added_by IS NULL THEN false ELSE coalesce((
            SELECT p.readiness = 'BLOCKED' AND p.result IS NOT NULL FROM tasks p WHERE p.id = t.added_by), false) END
        ) AS exclusive
    FROM unnest($1::bigint[]) AS given (id) CROSS JOIN LATERAL (
        SELECT t.id, t.job_id, t.group_id, t.has_dependents, t.added_by FROM tasks t WHERE t.id = given.id OFFSET 0) t
    WHERE t.job_id IS NOT NULL AND (t.has_dependents OR t.group_id IS NOT NULL)
    GROUP BY t.job_id ORDER BY t.job_id
) AS needed

-- name: complete_linked_tasks
-- Complete leased tasks that only tasks depend on, and propagate that to tasks and jobs. All others are left out, see
-- the function. The commit is asynchronous; returns the completed tasks and the queues with newly ready tasks.
SELECT completed, ready FROM aaiclick_complete_linked_tasks(
    $1::bigint[], $2::int[], $3::uuid[], $4::jsonb[], $5::float8[], $6::text[], $7::timestamptz)

-- name: flush_wal
-- Wait until all commits of this session are on disk: a durable commit of an empty record after them. It notifies the
-- workers of the queues $1.
SELECT pg_logical_emit_message(true, 'aaiclick', ''), (
    SELECT count(pg_notify('aaiclick_ready', u.queue)) FROM unnest($1::text[]) AS u (queue))

-- name: update_job_counters
-- Add ended tasks to the counters of the jobs $1: $2 completed, $3 failed, $4 cancelled (negative: restarted). A job
-- ends with its last task, and is reopened by a restart. $6 is the failed task; the first one is kept. $7 events were
-- emitted: the job stays open until they are routed.
WITH given AS (
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::int[], $4::int[], $6::text[], $7::int[])
        AS g (id, completed, failed, cancelled, cause, events)
),
locked AS MATERIALIZED (
    SELECT id FROM jobs WHERE id = ANY ($1::bigint[]) ORDER BY id FOR NO KEY UPDATE
)
UPDATE jobs j SET
    open_tasks = j.open_tasks - g.completed - g.failed - g.cancelled,
    failed_tasks = j.failed_tasks + g.failed, cancelled_tasks = j.cancelled_tasks + g.cancelled,
    open_events = j.open_events + g.events, error = coalesce(j.error, g.cause),
    started_at = CASE WHEN g.completed > 0 OR g.failed > 0 THEN coalesce(j.started_at, now()) ELSE j.started_at END,
    status = CASE
        WHEN j.open_tasks > g.completed + g.failed + g.cancelled OR j.open_events + g.events > 0 THEN
            CASE WHEN j.started_at IS NOT NULL OR g.completed > 0 OR g.failed > 0 THEN 'RUNNING' ELSE 'PENDING' END
        WHEN j.failed_tasks + g.failed > 0 OR j.error IS NOT NULL THEN 'FAILED'
        WHEN j.cancelled_tasks + g.cancelled > 0 THEN 'CANCELLED'
        ELSE 'COMPLETED' END::job_status,
    restarted_at = CASE WHEN j.completed_at IS NOT NULL AND j.open_tasks > g.completed + g.failed + g.cancelled
        THEN coalesce($5::timestamptz, now()) ELSE j.restarted_at END,
    completed_at = CASE WHEN j.open_tasks <= g.completed + g.failed + g.cancelled AND j.open_events + g.events = 0
        THEN coalesce($5::timestamptz, now()) END,
    updated_at = coalesce($5::timestamptz, now())
FROM given g WHERE j.id = g.id AND j.id = ANY (ARRAY(SELECT id FROM locked))
RETURNING j.id, j.status::text

-- name: mark_has_dependents
-- Mark the tasks $1 of the job $2 as having dependents. The row update makes a concurrent fast completion fall back to
-- the locked path.
WITH locked AS MATERIALIZED (
    SELECT id FROM tasks WHERE id = ANY ($1::bigint[]) AND job_id = $2 ORDER BY id FOR NO KEY UPDATE
)
UPDATE tasks t SET has_dependents = true, updated_at = now() WHERE id = ANY (ARRAY(SELECT id FROM locked))
RETURNING id, CASE WHEN passed_over THEN 'COMPLETED' ELSE status::text END AS status, type, completed_at IS NOT NULL AS ended, added_by, CASE WHEN added_by IS NULL THEN false
    ELSE coalesce((SELECT a.status <> 'COMPLETED' AND a.result IS NULL FROM tasks a WHERE a.id = t.added_by), false) END
    AS staged

-- name: load_groups
-- States of the groups $1 of the job $2.
SELECT id, name, unmet = 0 AS opened, completed_at IS NOT NULL AS completed, failed_at IS NOT NULL AS failed,
    skipped_at IS NOT NULL AS skipped, added_by,
    CASE WHEN added_by IS NULL THEN false ELSE EXISTS (
        SELECT FROM tasks a WHERE a.id = g.added_by AND a.status <> 'COMPLETED' AND a.result IS NULL) END AS staged
FROM groups g WHERE id = ANY ($1::bigint[]) AND job_id = $2

-- name: add_group_members
-- Add $2 open members to the groups $1.
UPDATE groups g SET open = g.open + u.added
FROM unnest($1::bigint[], $2::int[]) AS u (id, added) WHERE g.id = u.id

-- name: add_job_tasks
-- Count $2 more tasks, last in the transaction of an addition, unless the job has ended; a handler ($3) may add tasks
-- to a job that is being cancelled.
UPDATE jobs SET total_tasks = total_tasks + $2, open_tasks = open_tasks + $2
WHERE id = $1 AND completed_at IS NULL AND (cancel_requested_at IS NULL OR $3)
RETURNING total_tasks

-- name: remove_job_tasks
-- Subtract deleted tasks from the counters of the job $1.
UPDATE jobs SET total_tasks = total_tasks - $2, open_tasks = open_tasks - $3, failed_tasks = failed_tasks - $4,
    cancelled_tasks = cancelled_tasks - $5
WHERE id = $1

-- name: insert_addition
-- Record the nodes that the attempt $2 of the task $1 has added.
INSERT INTO task_additions (task_id, attempt, first_id, tasks, groups)
VALUES ($1, $2, $3, $4::bigint[], $5::bigint[])

-- name: block_on_returned_tasks
-- Block a leased task that has run and returned $6 tasks until those complete; its result may contain placeholders.
UPDATE tasks t SET status = 'PENDING', readiness = 'BLOCKED', unmet = $6::int, lease_token = NULL, result = $4::jsonb,
    started_at = coalesce(coalesce($7::timestamptz, now()) - $5::float8 * interval '1 second', t.started_at),
    error = NULL, error_fingerprint = NULL,
    updated_at = coalesce($7::timestamptz, now())
WHERE t.id = $1 AND t.attempt = $2 AND t.lease_token = $3
RETURNING t.id, t.org_id, t.job_id, t.group_id, t.has_dependents, t.concurrency_key, 'RETURNED' AS status, t.queue, t.passed_over,
    false AS gates, t.attempt, true AS stale

-- name: insert_returned_dependencies
-- Make the task $2 depend on the tasks $1, which it has returned.
INSERT INTO dependencies (previous_id, next_id, previous_type, next_type)
SELECT unnest($1::bigint[]), $2, 'task', 'task'

-- name: delete_addition_gates
-- Delete the dependencies on the task $1 of the nodes that its attempt $2 has added.
DELETE FROM dependencies WHERE previous_id = $1 AND next_id = ANY (ARRAY(
    SELECT unnest(a.tasks || a.groups) FROM task_additions a WHERE a.task_id = $1 AND a.attempt = $2))
RETURNING next_id, next_type::text

-- name: load_results
-- Results of the tasks $1.
SELECT id, result::text FROM tasks WHERE id = ANY ($1::bigint[])

-- name: set_result
-- Set the result of the task $1.
UPDATE tasks SET result = $2::jsonb, updated_at = now() WHERE id = $1

-- name: list_enclosing_groups
-- The group $1 and the groups around it, from the inside out.
WITH RECURSIVE around AS (
    SELECT id, name, parent_group_id, unmet, 1 AS depth FROM groups WHERE id = $1
    UNION ALL
    SELECT g.id, g.name, g.parent_group_id, g.unmet, a.depth + 1 FROM groups g JOIN around a ON g.id = a.parent_group_id
)
SELECT id, name, unmet FROM around ORDER BY depth

-- name: list_unmet_dependencies
-- Predecessors of the tasks and groups $1 that have not completed, at most $2.
SELECT d.next_id, d.previous_type::text AS kind, d.previous_id AS id, coalesce(t.type, g.name) AS name,
    CASE WHEN t.id IS NOT NULL THEN t.status::text WHEN g.failed_at IS NOT NULL THEN 'cannot complete'
         WHEN g.unmet > 0 THEN 'closed' ELSE g.open || ' open' END AS state
FROM dependencies d
LEFT JOIN tasks t ON d.previous_type = 'task' AND t.id = d.previous_id
LEFT JOIN groups g ON d.previous_type = 'group' AND g.id = d.previous_id
WHERE d.next_id = ANY ($1::bigint[]) AND CASE
    WHEN d.next_type = 'handler' THEN t.completed_at IS NULL
    ELSE (t.status <> 'COMPLETED' AND NOT t.passed_over) OR (g.id IS NOT NULL AND g.completed_at IS NULL) END
ORDER BY d.previous_id LIMIT $2

-- name: list_job_edges
-- Dependencies of the job $1.
SELECT d.previous_id, d.next_id FROM dependencies d
WHERE d.previous_id IN (SELECT id FROM tasks WHERE job_id = $1 UNION ALL SELECT id FROM groups WHERE job_id = $1)

-- name: list_job_groups
-- Groups of the job $1.
SELECT id, name, parent_group_id FROM groups WHERE job_id = $1

-- name: list_job_nodes
-- Tasks of the job $1 with their groups.
SELECT id, group_id FROM tasks WHERE job_id = $1
