-- name: find_jobs
-- Jobs of the org $1 older than the id $2, newest first: of the next $3, those with status $4 and a name like $5, at most $6.
SELECT * FROM (
    SELECT id, name, status::text, created_at, started_at, restarted_at, completed_at, paused_at, cancel_requested_at, total_tasks, open_tasks, failed_tasks, cancelled_tasks, error
    FROM jobs WHERE org_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3
) AS j WHERE ($4::text IS NULL OR status = $4) AND ($5::text IS NULL OR name ILIKE $5) ORDER BY id DESC LIMIT $6

-- name: list_unfinished_jobs
-- Unfinished jobs of the org $1 older than the id $2, newest first; with status $3 and a name like $4, at most $5.
SELECT id, name, status::text, created_at, started_at, restarted_at, completed_at, paused_at, cancel_requested_at, total_tasks, open_tasks, failed_tasks, cancelled_tasks, error
FROM jobs
WHERE org_id = $1 AND completed_at IS NULL AND id < $2 AND ($3::text IS NULL OR status = $3::job_status)
  AND ($4::text IS NULL OR name ILIKE $4)
ORDER BY id DESC LIMIT $5

-- name: list_unsuccessful_jobs
-- Failed or cancelled jobs (status $3) of the org $1 older than the id $2, newest first, at most $4. The status is a
-- range and part of the order, so that only one index fits: by id, PostgreSQL would read all successful jobs.
SELECT id, name, status::text, created_at, started_at, restarted_at, completed_at, paused_at, cancel_requested_at, total_tasks, open_tasks, failed_tasks, cancelled_tasks, error
FROM jobs
WHERE org_id = $1 AND status IN ('FAILED', 'CANCELLED') AND status >= $3::job_status AND status <= $3::job_status AND id < $2
ORDER BY jobs.status DESC, jobs.id DESC LIMIT $4

-- name: list_jobs_by_name
-- Jobs of the org $1 named $2, older than the id $3, newest first; with status $4, at most $5.
SELECT id, name, status::text, created_at, started_at, restarted_at, completed_at, paused_at, cancel_requested_at, total_tasks, open_tasks, failed_tasks, cancelled_tasks, error
FROM jobs WHERE org_id = $1 AND name = $2 AND id < $3 AND ($4::text IS NULL OR status = $4::job_status)
ORDER BY id DESC LIMIT $5

-- name: find_window_end
-- The id of the job $3 positions after the first one of the org $1 before the id $2.
SELECT id FROM jobs WHERE org_id = $1 AND id < $2 ORDER BY id DESC OFFSET $3 LIMIT 1

-- name: count_jobs
-- Jobs of the org $1 by state: unfinished ones, at most $2 each, and the outcomes of the last $2.
SELECT
    (SELECT count(*) FROM (SELECT FROM jobs WHERE org_id = $1 AND completed_at IS NULL AND status = 'PENDING' LIMIT $2) AS p)
        AS pending,
    (SELECT count(*) FROM (SELECT FROM jobs WHERE org_id = $1 AND completed_at IS NULL AND status = 'RUNNING' LIMIT $2) AS r)
        AS running,
    count(*) FILTER (WHERE status = 'COMPLETED') AS completed, count(*) FILTER (WHERE status = 'FAILED') AS failed,
    count(*) FILTER (WHERE status = 'CANCELLED') AS cancelled, count(*) AS seen
FROM (SELECT status FROM jobs WHERE org_id = $1 ORDER BY id DESC LIMIT $2) AS last

-- name: prefer_indexes
-- Prefer index plans. Without statistics PostgreSQL expects few jobs of an org and few tasks of a job, and would sort
-- all of them: counting by hashing is four times as fast, and a page is read in index order.
SET LOCAL enable_sort = off

-- name: load_job_units
-- Tasks of the job $1 by group, type and state.
SELECT group_id, type, status::text, next_retry_at IS NOT NULL AS retrying, count(*) AS count, min(id) AS first_id,
    min(created_at) AS created_at, min(started_at) AS started_at, max(completed_at) AS completed_at
FROM tasks WHERE job_id = $1 GROUP BY group_id, type, status, next_retry_at IS NOT NULL

-- name: sample_job_units
-- The same as `load_job_units`, of the first and the last $2 tasks of the job $1.
WITH ends AS (
    (SELECT id, group_id, type, status, next_retry_at, created_at, started_at, completed_at FROM tasks
     WHERE job_id = $1 ORDER BY id LIMIT $2)
    UNION
    (SELECT id, group_id, type, status, next_retry_at, created_at, started_at, completed_at FROM tasks
     WHERE job_id = $1 ORDER BY id DESC LIMIT $2)
)
SELECT group_id, type, status::text, next_retry_at IS NOT NULL AS retrying, count(*) AS count, min(id) AS first_id,
    min(created_at) AS created_at, min(started_at) AS started_at, max(completed_at) AS completed_at
FROM ends GROUP BY group_id, type, status, next_retry_at IS NOT NULL

-- name: count_running_tasks
-- Number of leased tasks of the job $1; reads the leased tasks of all jobs, which are few.
WITH live AS MATERIALIZED (SELECT job_id FROM tasks WHERE status IN ('CLAIMED', 'RUNNING'))
SELECT count(*) FROM live WHERE job_id = $1

-- name: list_graph_tasks
-- Tasks of the job $1 with the columns of the graph, at most $2.
SELECT id, group_id, type, status::text, next_retry_at IS NOT NULL AS retrying, created_at, started_at, completed_at
FROM tasks WHERE job_id = $1 ORDER BY id LIMIT $2

-- name: search_job_tasks
-- Tasks of the job $1 after the id $2, by id: among the next $6, those with status $3 and type $4 (NULL: any), at most
-- $5. A separate statement, since a prepared one would keep a plan made without `prefer_indexes`.
SELECT id, type, status::text, next_retry_at, queue, attempt, started_at, completed_at, error FROM (
    SELECT * FROM tasks WHERE job_id = $1 AND id > $2 ORDER BY id LIMIT $6
) AS next WHERE ($3::text IS NULL OR status = $3::task_status) AND ($4::text IS NULL OR type = $4) ORDER BY id LIMIT $5

-- name: search_failed_tasks
-- Failed tasks (status $3) of the job $1 after the id $2, of the type $4 (NULL: any), at most $5. They are found by
-- their attempts, which are few: at most $6 of these are read, instead of all tasks.
SELECT t.id, t.type, t.status::text, t.next_retry_at, t.queue, t.attempt, t.started_at, t.completed_at, t.error FROM (
    SELECT task_id FROM (
        SELECT task_id FROM task_attempts
        WHERE task_id > $2 AND task_id >= (SELECT id FROM tasks WHERE job_id = $1 ORDER BY id LIMIT 1)
          AND task_id <= (SELECT id FROM tasks WHERE job_id = $1 ORDER BY id DESC LIMIT 1)
        ORDER BY task_id LIMIT $6
    ) AS a GROUP BY task_id
) AS f JOIN tasks t ON t.id = f.task_id
WHERE t.job_id = $1 AND t.status = $3::task_status AND ($4::text IS NULL OR t.type = $4)
ORDER BY t.id LIMIT $5

-- name: search_leased_tasks
-- Leased tasks (status $3) of the job $1 after the id $2, of the type $4 (NULL: any), at most $5; reads the leased
-- tasks of all jobs, which are few.
WITH live AS MATERIALIZED (SELECT id, job_id, status FROM tasks WHERE status IN ('CLAIMED', 'RUNNING'))
SELECT t.id, t.type, t.status::text, t.next_retry_at, t.queue, t.attempt, t.started_at, t.completed_at, t.error
FROM live l JOIN tasks t ON t.id = l.id
WHERE l.job_id = $1 AND l.id > $2 AND l.status = $3::task_status AND ($4::text IS NULL OR t.type = $4)
ORDER BY t.id LIMIT $5

-- name: find_task_window_end
-- The last of the $3 + 1 tasks of the job $1 after the id $2; no row if there are fewer.
SELECT id FROM tasks WHERE job_id = $1 AND id > $2 ORDER BY id OFFSET $3 LIMIT 1

-- name: list_graph_groups
SELECT id, name, parent_group_id FROM groups WHERE job_id = $1 ORDER BY id LIMIT $2

-- name: sample_unit_tasks
-- A few ($3) tasks of each unit of the job $1, starting at the first task of the unit ($2).
SELECT s.id, s.group_id, s.type FROM tasks f CROSS JOIN LATERAL (
    SELECT t.id, t.group_id, t.type FROM (
        SELECT id, group_id, type FROM tasks WHERE job_id = $1 AND id >= f.id ORDER BY id LIMIT 4 * $3
    ) AS t WHERE t.group_id IS NOT DISTINCT FROM f.group_id AND t.type = f.type LIMIT $3
) AS s WHERE f.id = ANY ($2::bigint[])

-- name: list_incoming_edges
SELECT previous_id, next_id FROM dependencies WHERE next_id = ANY ($1::bigint[]) LIMIT $2

-- name: load_task_names
SELECT id, group_id, type, status::text, next_retry_at FROM tasks WHERE id = ANY ($1::bigint[])

-- name: list_failed_attempts
-- Attempts of the job $1 that did not succeed, latest first, at most $2. They are few: those between the job's first
-- and last task are read, instead of all its tasks.
SELECT a.task_id, t.type, a.attempt, a.outcome::text, a.worker_id, a.ended_at, a.error FROM (
    SELECT * FROM task_attempts
    WHERE task_id >= (SELECT id FROM tasks WHERE job_id = $1 ORDER BY id LIMIT 1)
      AND task_id <= (SELECT id FROM tasks WHERE job_id = $1 ORDER BY id DESC LIMIT 1)
    ORDER BY task_id DESC LIMIT 5000
) AS a JOIN tasks t ON t.id = a.task_id
WHERE t.job_id = $1 ORDER BY a.ended_at DESC, a.task_id, a.attempt LIMIT $2

-- name: list_tasks_with_logs
-- Tasks of the job $1 that may have logs: leased ones, and the last ones that started; at most $2 of each.
WITH live AS MATERIALIZED (SELECT id, job_id, type, started_at FROM tasks WHERE status IN ('CLAIMED', 'RUNNING'))
(SELECT id, type, true AS working, started_at FROM live WHERE job_id = $1 ORDER BY id DESC LIMIT $2)
UNION ALL
(SELECT id, type, false, started_at FROM (
    SELECT id, type, started_at, status FROM tasks WHERE job_id = $1 ORDER BY id DESC LIMIT 2000
 ) AS t WHERE started_at IS NOT NULL AND status NOT IN ('CLAIMED', 'RUNNING') ORDER BY started_at DESC LIMIT $2)

-- name: list_neighbours
-- Predecessors (up) and dependents (down) of the task $1, tasks and groups, at most $2 of each.
SELECT e.up, e.id, t.type AS name, t.status::text, t.next_retry_at, g.name AS group_name FROM (
    (SELECT true AS up, previous_id AS id FROM dependencies WHERE next_id = $1 ORDER BY previous_id LIMIT $2)
    UNION ALL
    (SELECT false, next_id FROM dependencies WHERE previous_id = $1 ORDER BY next_id LIMIT $2)
) AS e LEFT JOIN tasks t ON t.id = e.id LEFT JOIN groups g ON g.id = e.id

-- name: count_recent_jobs
-- Jobs of the org $1 after the id $2, of the last $3: by intervals of $4 ids (an id begins with its time), and by
-- status.
SELECT ((id - $2) / $4::bigint)::int AS step, status::text, count(*) AS count FROM (
    SELECT id, status FROM jobs WHERE org_id = $1 AND id > $2 ORDER BY id DESC LIMIT $3
) AS j GROUP BY 1, 2

-- name: load_job_latencies
-- Waiting and run times, in seconds, of the last $2 ended jobs of the org $1.
SELECT count(*) AS count,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY waited) AS waited_half, percentile_cont(0.95) WITHIN GROUP (ORDER BY waited) AS waited_most,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY took) AS took_half, percentile_cont(0.95) WITHIN GROUP (ORDER BY took) AS took_most
FROM (
    SELECT extract(epoch FROM started_at - created_at)::float8 AS waited,
        extract(epoch FROM completed_at - greatest(started_at, restarted_at))::float8 AS took
    FROM (SELECT * FROM jobs WHERE org_id = $1 ORDER BY id DESC LIMIT $2) AS last
    WHERE completed_at IS NOT NULL AND started_at IS NOT NULL
) AS j
