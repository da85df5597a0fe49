-- name: get_job
SELECT {jobs.*} FROM jobs WHERE id = $1

-- name: get_task
-- The task $1, and the version of the code of its last worker.
SELECT {tasks.*}, (SELECT w.code_version FROM workers w WHERE w.id = tasks.worker_id) AS code_version
FROM tasks WHERE id = $1

-- name: list_code_versions
-- Versions of the code that ran the first $2 tasks of the job $1.
SELECT DISTINCT w.code_version FROM workers w
WHERE w.code_version IS NOT NULL AND w.id = ANY (ARRAY(
    SELECT DISTINCT s.worker_id FROM (SELECT worker_id FROM tasks WHERE job_id = $1 ORDER BY id LIMIT $2) AS s))
ORDER BY 1

-- name: list_jobs
-- Jobs, newest first: of the org $1 (NULL: any), with status $2, older than the id $3, at most $4.
SELECT {jobs.*} FROM jobs
WHERE ($1::uuid IS NULL OR org_id = $1) AND ($2::text IS NULL OR status = $2::job_status) AND id < $3
ORDER BY id DESC LIMIT $4

-- name: list_tagged_jobs
-- The same for jobs with all tags of $5.
SELECT {jobs.*} FROM jobs
WHERE tags @> $5::jsonb AND ($1::uuid IS NULL OR org_id = $1) AND ($2::text IS NULL OR status = $2::job_status)
  AND id < $3
ORDER BY id DESC LIMIT $4

-- name: list_tasks_of_job
-- Tasks of the job $2 of the org $1 after the id $3, in order; with status $4 and type $5 (NULL: any), at most $6.
SELECT {tasks.*} FROM tasks
WHERE job_id = $2 AND org_id = $1 AND id > $3 AND ($4::text IS NULL OR status = $4::task_status)
  AND ($5::text IS NULL OR type = $5)
ORDER BY id LIMIT $6

-- name: list_tasks_of_org
-- Tasks of the org $1, which is not the default one, before the id $2, newest first; with status $3, type $4 and queue
-- $5 (NULL: any), at most $6. The condition on the default org matches that of the partial index.
SELECT {tasks.*} FROM tasks
WHERE org_id = $1 AND org_id <> '00000000-0000-4000-8000-000000000001' AND id < $2
  AND ($3::text IS NULL OR status = $3::task_status) AND ($4::text IS NULL OR type = $4)
  AND ($5::text IS NULL OR queue = $5)
ORDER BY org_id DESC, id DESC LIMIT $6

-- name: list_tasks_of_default_org
-- Tasks of the default org $1 before the id $2, newest first; with status $3, type $4 and queue $5 (NULL: any), at most
-- $6. By the primary key: where the default org is used, nearly all tasks are its own.
SELECT {tasks.*} FROM tasks
WHERE org_id = $1 AND id < $2 AND ($3::text IS NULL OR status = $3::task_status) AND ($4::text IS NULL OR type = $4)
  AND ($5::text IS NULL OR queue = $5)
ORDER BY id DESC LIMIT $6

-- name: find_task_by_key
-- The task with an idempotency key.
SELECT {tasks.*} FROM tasks WHERE org_id = $1 AND type = $2 AND idempotency_key = $3

-- name: find_next_task
-- The first runnable task of the job $1, if none of its tasks runs.
SELECT t.id, t.type, t.error FROM tasks t
WHERE t.job_id = $1 AND t.readiness IN ('READY', 'TIME', 'HELD') AND NOT EXISTS (
    SELECT FROM tasks r WHERE r.job_id = $1 AND r.status IN ('CLAIMED', 'RUNNING')
)
ORDER BY t.readiness = 'TIME', t.id LIMIT 1

-- name: load_job_results
-- Final results of the job $1: those of tasks without dependents, the first $2 after the task $3. A task that returned its
-- additions has dependents no longer.
SELECT id, definition_id, coalesce(entrypoint, type) AS name, result::text AS result, literal FROM tasks t
WHERE job_id = $1 AND id > $3 AND status = 'COMPLETED' AND added_by IS NULL AND result IS NOT NULL
  AND (trigger_rule IN ('failed', 'ended')) IS NOT TRUE
  AND (NOT has_dependents OR NOT EXISTS (SELECT FROM dependencies d WHERE d.previous_id = t.id AND d.next_type < 'handler'))
ORDER BY id LIMIT $2

-- name: load_group_results
-- Results of the tasks of the group $1, with their attempts; of the job $2, if given.
SELECT id, attempt, result::text AS result, started_at, completed_at FROM tasks WHERE group_id = $1
  AND ($2::bigint IS NULL OR job_id = $2) ORDER BY id

-- name: load_task_results
-- Results of the tasks $1 of the job $2, or the failures of those that were passed over.
SELECT id, status::text, result::text AS result, literal, CASE WHEN status = 'COMPLETED' THEN completed_at END AS completed_at,
    CASE WHEN passed_over AND status IN ('FAILED', 'DEAD_LETTER') THEN
    jsonb_build_object('object_type', 'failure', 'task_id', id::text, 'type', type, 'status', status, 'attempt', attempt,
        'error', coalesce(error, ''))::text END AS failure
FROM tasks WHERE id = ANY ($1::bigint[]) AND job_id = $2

-- name: load_job_progress
-- Progress of the job $1: a row for each group, and one named '' for tasks without a group. Chunks of an operator
-- report their rows, from which their rate is computed; results of other tasks may have any form.
SELECT coalesce(g.name, '') AS name, count(*) AS total, count(*) FILTER (WHERE t.status = 'COMPLETED') AS completed,
    count(*) FILTER (WHERE t.status IN ('CLAIMED', 'RUNNING')) AS running,
    count(*) FILTER (WHERE t.status = 'DEAD_LETTER' OR (t.status = 'FAILED' AND t.next_retry_at IS NULL)) AS failed,
    count(*) FILTER (WHERE t.status = 'CANCELLED') AS cancelled,
    sum((t.result ->> 'rows')::bigint) FILTER (
        WHERE t.result ? 'chunk' AND t.result ->> 'rows' ~ '^[0-9]{1,15}$')::bigint AS rows,
    extract(epoch FROM CASE WHEN count(*) FILTER (WHERE t.completed_at IS NULL) = 0 THEN max(t.completed_at)
        ELSE now() END - min(t.started_at))::float8 AS seconds
FROM tasks t LEFT JOIN groups g ON g.id = t.group_id
WHERE t.job_id = $1 GROUP BY g.id, g.name ORDER BY min(t.id)

-- name: list_task_attempts
-- Attempts of the task $1 that did not succeed.
SELECT {task_attempts.*}, (SELECT w.code_version FROM workers w WHERE w.id = a.worker_id) AS code_version
FROM task_attempts a WHERE task_id = $1 ORDER BY attempt

-- name: list_job_attempts
-- Attempts of the job $1 that did not succeed, latest first, at most $2.
SELECT a.task_id, t.type, a.attempt, a.outcome::text, a.worker_id, a.ended_at, a.error FROM tasks t
JOIN task_attempts a ON a.task_id = t.id WHERE t.job_id = $1 ORDER BY a.ended_at DESC, a.task_id, a.attempt LIMIT $2

-- name: list_changed_jobs
-- Jobs of the orgs $1 that changed: all unfinished ones, those among $2 (previously unfinished) that have ended, and
-- ended ones after the id $3.
SELECT id, org_id, name, status::text, total_tasks, open_tasks, failed_tasks, cancelled_tasks, paused_at IS NOT NULL AS paused
FROM jobs WHERE org_id = ANY ($1::uuid[]) AND completed_at IS NULL
UNION ALL
SELECT id, org_id, name, status::text, total_tasks, open_tasks, failed_tasks, cancelled_tasks, paused_at IS NOT NULL AS paused
FROM jobs WHERE id = ANY ($2::bigint[]) AND completed_at IS NOT NULL
UNION ALL
SELECT id, org_id, name, status::text, total_tasks, open_tasks, failed_tasks, cancelled_tasks, paused_at IS NOT NULL AS paused
FROM jobs WHERE org_id = ANY ($1::uuid[]) AND id > $3 AND completed_at IS NOT NULL AND id <> ALL ($2::bigint[])

-- name: list_dead_letters
-- Dead letters, newest first: of the org $1, the type $2, with the fingerprint $3 (NULL: any), before the end $4 and
-- the id $5 (NULL: from the newest), at most $6. Fingerprints of the definitions $7 and of tasks added by the tasks $8
-- are hidden.
SELECT id, org_id, job_id, type, queue, attempt, failures, completed_at, error_fingerprint, error FROM tasks
WHERE status = 'DEAD_LETTER' AND ($1::uuid IS NULL OR org_id = $1) AND ($2::text IS NULL OR type = $2)
  AND ($3::text IS NULL OR (error_fingerprint = $3
    AND (definition_id = ANY ($7::uuid[])) IS NOT TRUE AND (added_by = ANY ($8::bigint[])) IS NOT TRUE))
  AND ($4::timestamptz IS NULL OR (completed_at, id) < ($4::timestamptz, $5::bigint))
ORDER BY completed_at DESC, id DESC LIMIT $6

-- name: group_dead_letters
-- Dead letters of the org $1 (NULL: all) by fingerprint, most frequent first, with an example each. Those of the
-- definitions $2 and of tasks added by the tasks $3 are one group without a fingerprint.
SELECT fingerprint AS error_fingerprint, count(*) AS count, min(completed_at) AS first, max(completed_at) AS last,
    max(type) AS type, max(id) AS example, (array_agg(error ORDER BY id DESC))[1] AS error, hidden
FROM (
    SELECT id, type, completed_at, error, hidden, CASE WHEN NOT hidden THEN error_fingerprint END AS fingerprint
    FROM tasks CROSS JOIN LATERAL (
        SELECT (definition_id = ANY ($2::uuid[])) IS TRUE OR (added_by = ANY ($3::bigint[])) IS TRUE AS hidden) AS u
    WHERE status = 'DEAD_LETTER' AND ($1::uuid IS NULL OR org_id = $1)
) AS letters
GROUP BY fingerprint, hidden ORDER BY count(*) DESC, 1 LIMIT 1000

-- name: list_orgs_of_dead_letters
-- Orgs of dead letters of the type $1, the error fingerprint $2, the ids $3 (NULL: any).
SELECT DISTINCT org_id FROM tasks
WHERE status = 'DEAD_LETTER' AND ($1::text IS NULL OR type = $1) AND ($2::text IS NULL OR error_fingerprint = $2)
  AND ($3::bigint[] IS NULL OR id = ANY ($3::bigint[]))
ORDER BY org_id

-- name: list_dead_letter_origins
-- Distinct origins of dead letters of the org $1: a definition, or a task that added them; with an example each.
SELECT definition_id, added_by, max(id) AS id FROM tasks
WHERE status = 'DEAD_LETTER' AND org_id = $1 AND (definition_id IS NOT NULL OR added_by IS NOT NULL) GROUP BY 1, 2

-- name: load_queue_depths
-- Queues of the org $1 (NULL: all) with settings or unfinished tasks.
WITH live AS (
    SELECT org_id, queue, count(*) FILTER (WHERE readiness = 'READY') AS ready,
        count(*) FILTER (WHERE readiness = 'TIME') AS scheduled, count(*) FILTER (WHERE readiness = 'BLOCKED') AS blocked,
        count(*) FILTER (WHERE readiness = 'HELD') AS held, count(*) FILTER (WHERE lease_token IS NOT NULL) AS running
    FROM tasks WHERE (readiness IS NOT NULL OR status IN ('CLAIMED', 'RUNNING')) AND ($1::uuid IS NULL OR org_id = $1)
    GROUP BY org_id, queue
)
SELECT o.slug AS org, coalesce(l.queue, q.name) AS queue, coalesce(l.ready, 0) AS ready,
    coalesce(l.scheduled, 0) AS scheduled, coalesce(l.blocked, 0) AS blocked, coalesce(l.held, 0) AS held,
    coalesce(l.running, 0) AS running, q.max_running, q.rate_per_second, q.rate_burst,
    q.weight, q.paused_at
FROM live l FULL JOIN queues q ON q.org_id = l.org_id AND q.name = l.queue
JOIN orgs o ON o.id = coalesce(l.org_id, q.org_id)
WHERE $1::uuid IS NULL OR o.id = $1
ORDER BY o.slug, 2

-- name: load_queue_scale
-- Load of the queue $2 of the org $1: tasks that wait for a worker (bounded by $3), tasks that run, and seconds since the oldest became ready.
WITH waiting AS (
    SELECT count(*) AS tasks, min(became_ready) AS oldest_at FROM (
        SELECT coalesce(available_at, updated_at) AS became_ready FROM tasks
        WHERE org_id = $1 AND queue = $2 AND readiness = 'READY' LIMIT $3) AS ready
)
SELECT w.tasks AS waiting,
    (SELECT count(*) FROM tasks WHERE status IN ('CLAIMED', 'RUNNING') AND org_id = $1 AND queue = $2) AS running,
    greatest(0, coalesce(extract(epoch FROM now() - w.oldest_at), 0))::float8 AS oldest_seconds
FROM waiting w
