-- name: release_child_keys
-- Let the parent tasks $1 submit their children again: those that did not succeed, or all ($2).
UPDATE jobs SET idempotency_key = NULL
WHERE parent_task_id = ANY ($1::bigint[]) AND idempotency_key IS NOT NULL AND ($2 OR status IN ('FAILED', 'CANCELLED'))

-- name: count_ancestors
-- Number of jobs above a child of the job $1, at most $2.
WITH RECURSIVE above AS (
    SELECT parent_job_id, 1 AS depth FROM jobs WHERE id = $1
    UNION ALL
    SELECT j.parent_job_id, a.depth + 1 FROM above a CROSS JOIN LATERAL (
        SELECT parent_job_id FROM jobs WHERE id = a.parent_job_id OFFSET 0) j
    WHERE a.depth < $2
)
SELECT max(depth) AS depth FROM above

-- name: list_unfinished_children
-- Unfinished children of the jobs $1, but not of their tasks that go on (handlers and what they added), and of the tasks
-- $2, oldest first. OFFSET 0: with the condition inside, a plan could read the index of all unfinished jobs.
SELECT id FROM (
    SELECT j.id FROM unnest($1::bigint[]) AS p (id) CROSS JOIN LATERAL (
        SELECT id, parent_task_id, completed_at FROM jobs WHERE parent_job_id = p.id OFFSET 0) j
    WHERE j.completed_at IS NULL AND NOT coalesce((
        SELECT t.completed_at IS NULL AND t.cancel_requested_at IS NULL FROM tasks t
        WHERE t.id = j.parent_task_id), false)
    UNION
    SELECT j.id FROM unnest($2::bigint[]) AS p (id) CROSS JOIN LATERAL (
        SELECT id, completed_at FROM jobs WHERE parent_task_id = p.id OFFSET 0) j
    WHERE j.completed_at IS NULL
) AS c ORDER BY id

-- name: list_job_tree
-- The job $1 with the children below it, each after its parent; at most $2 jobs, $3 levels.
WITH RECURSIVE tree AS (
    SELECT id, parent_job_id, parent_task_id, name, status, created_at, completed_at, org_id, 0 AS depth, ARRAY[id] AS path
    FROM jobs WHERE id = $1
    UNION ALL
    SELECT c.id, c.parent_job_id, c.parent_task_id, c.name, c.status, c.created_at, c.completed_at, c.org_id, t.depth + 1,
        t.path || c.id
    FROM tree t CROSS JOIN LATERAL (
        SELECT id, parent_job_id, parent_task_id, name, status, created_at, completed_at, org_id FROM jobs j
        WHERE j.parent_job_id = t.id ORDER BY j.id LIMIT $2) AS c
    WHERE t.depth < $3
)
SELECT id, parent_job_id, parent_task_id, name, status::text, created_at, completed_at, depth FROM tree ORDER BY path LIMIT $2
