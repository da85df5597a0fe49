-- The tasks $1 have completed by their attempts $2: delete what other attempts of theirs have added, with everything that
-- was added by it in turn. Says what that takes away from jobs and from groups that stay, and which tasks and groups
-- that stay had been waiting for it.
WITH RECURSIVE stale (tasks, groups) AS (
    SELECT a.tasks, a.groups FROM unnest($1::bigint[], $2::int[]) AS u (id, attempt)
    JOIN task_additions a ON a.task_id = u.id AND a.attempt <> u.attempt
    UNION ALL
    SELECT a.tasks, a.groups FROM stale s JOIN task_additions a ON a.task_id = ANY (s.tasks)
),
old AS MATERIALIZED (
    SELECT ARRAY(SELECT unnest(tasks) FROM stale) AS tasks, ARRAY(SELECT unnest(groups) FROM stale) AS groups
),
records AS (
    DELETE FROM task_additions a USING unnest($1::bigint[], $2::int[]) AS u (id, attempt)
    WHERE a.task_id = u.id AND a.attempt <> u.attempt
),
tasks_gone AS (
    DELETE FROM tasks WHERE id = ANY (ARRAY(SELECT unnest(tasks) FROM old))
        OR group_id = ANY (ARRAY(SELECT unnest(groups) FROM old))
    RETURNING id, job_id, group_id, status, completed_at
),
groups_gone AS (
    DELETE FROM groups WHERE id = ANY (ARRAY(SELECT unnest(groups) FROM old))
    RETURNING id, parent_group_id, completed_at
)
SELECT 'job' AS kind, job_id AS id, count(*)::int AS gone, count(*) FILTER (WHERE completed_at IS NULL)::int AS open,
    count(*) FILTER (WHERE completed_at IS NOT NULL AND status IN ('FAILED', 'DEAD_LETTER'))::int AS failed,
    count(*) FILTER (WHERE status = 'CANCELLED')::int AS cancelled
FROM tasks_gone GROUP BY job_id
UNION ALL
SELECT 'group', group_id, count(*)::int, 0, 0, 0 FROM (
    SELECT group_id FROM tasks_gone WHERE status <> 'COMPLETED'
    UNION ALL SELECT parent_group_id FROM groups_gone WHERE completed_at IS NULL) AS lost
WHERE group_id NOT IN (SELECT id FROM groups_gone) GROUP BY group_id
UNION ALL
SELECT CASE d.next_type WHEN 'task' THEN 'waiting task' ELSE 'waiting group' END, d.next_id, 1, 0, 0, 0
FROM dependencies d
WHERE d.previous_id IN (SELECT id FROM tasks_gone WHERE status <> 'COMPLETED'
        UNION ALL SELECT id FROM groups_gone WHERE completed_at IS NULL)
    AND d.next_id NOT IN (SELECT id FROM tasks_gone UNION ALL SELECT id FROM groups_gone)
    AND d.next_id <> ALL ($1::bigint[])
