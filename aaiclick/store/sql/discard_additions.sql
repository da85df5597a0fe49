-- name: discard_additions
-- Delete nodes added by other attempts than the completed ones (tasks $1, attempts $2), recursively. Returns the
-- changes to jobs and remaining groups, and the remaining tasks and groups that waited for deleted nodes.
--
-- Rows are found by LATERAL look-ups and `= ANY (ARRAY(…))` only: neither can be planned as a full scan, whatever the
-- planner's estimate of the table size.
WITH RECURSIVE given AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::int[]) AS u (id, attempt)),
stale (task_id, attempt, tasks, groups) AS (
    SELECT a.* FROM given u CROSS JOIN LATERAL (
        SELECT a.task_id, a.attempt, a.tasks, a.groups FROM task_additions a
        WHERE a.task_id = u.id AND a.attempt <> u.attempt OFFSET 0) a
    UNION ALL
    SELECT a.* FROM stale s CROSS JOIN LATERAL unnest(s.tasks) AS added (id) CROSS JOIN LATERAL (
        SELECT a.task_id, a.attempt, a.tasks, a.groups FROM task_additions a WHERE a.task_id = added.id OFFSET 0) a
),
old_groups AS MATERIALIZED (SELECT unnest(groups) AS id FROM stale),
old_tasks AS MATERIALIZED (
    SELECT unnest(tasks) AS id FROM stale
    UNION
    SELECT t.id FROM old_groups g CROSS JOIN LATERAL (SELECT t.id FROM tasks t WHERE t.group_id = g.id OFFSET 0) t
),
records AS (
    DELETE FROM task_additions a USING given u
    WHERE a.task_id = ANY ($1::bigint[]) AND a.task_id = u.id AND a.attempt <> u.attempt
),
tasks_gone AS (
    DELETE FROM tasks WHERE id = ANY (ARRAY(SELECT id FROM old_tasks))
    RETURNING id, job_id, group_id, status, completed_at, passed_over
),
groups_gone AS (
    DELETE FROM groups WHERE id = ANY (ARRAY(SELECT id FROM old_groups))
    RETURNING id, parent_group_id, completed_at, skipped_at
)
SELECT 'job' AS kind, job_id AS id, count(*)::int AS gone, count(*) FILTER (WHERE completed_at IS NULL)::int AS open,
    count(*) FILTER (WHERE completed_at IS NOT NULL AND status IN ('FAILED', 'DEAD_LETTER') AND NOT passed_over)::int AS failed,
    count(*) FILTER (WHERE status = 'CANCELLED')::int AS cancelled
FROM tasks_gone GROUP BY job_id
UNION ALL
SELECT 'group', group_id, count(*)::int, 0, 0, 0 FROM (
    SELECT group_id FROM tasks_gone WHERE status NOT IN ('COMPLETED', 'SKIPPED') AND NOT passed_over
    UNION ALL SELECT parent_group_id FROM groups_gone WHERE num_nonnulls(completed_at, skipped_at) = 0) AS lost
WHERE group_id NOT IN (SELECT id FROM groups_gone) GROUP BY group_id
UNION ALL
SELECT 'waiting ' || d.next_type, d.next_id, 1, 0, 0, 0
FROM (SELECT id, completed_at IS NOT NULL AS ended FROM tasks_gone WHERE status <> 'COMPLETED' AND NOT passed_over
      UNION ALL SELECT id, false FROM groups_gone WHERE completed_at IS NULL) AS p
CROSS JOIN LATERAL (
    SELECT d.next_type, d.next_id FROM dependencies d WHERE d.previous_id = p.id OFFSET 0) d
WHERE NOT (p.ended AND d.next_type = 'handler') AND d.next_id NOT IN (SELECT id FROM tasks_gone UNION ALL SELECT id FROM groups_gone)
    AND d.next_id <> ALL ($1::bigint[])
