-- name: cancel_downstream
-- Cancel tasks that can no longer run because the task $1 did not complete, and mark the groups that cannot complete. A
-- group is stuck when one of its members cannot complete, and barred when it cannot open: then none of its members can
-- run. The recursion passes nodes that were cancelled or marked because of $1 before, since a task that was reset may
-- depend on them. It ends at those of other causes, at skipped groups, and at handlers, which run after a failure.
-- Returns the number of cancelled tasks, and those of them that have dependents.
WITH RECURSIVE doomed (id, kind) AS (
    SELECT $1::bigint, 'task'
    UNION
    SELECT n.id, n.kind FROM doomed d CROSS JOIN LATERAL (
        SELECT e.next_id AS id, CASE e.next_type WHEN 'task' THEN 'task' ELSE 'barred' END AS kind
        FROM dependencies e WHERE e.previous_id = d.id AND e.next_type < 'handler'
        UNION ALL
        SELECT t.group_id, 'stuck' FROM tasks t WHERE d.kind = 'task' AND t.id = d.id AND t.group_id IS NOT NULL
        UNION ALL
        SELECT g.parent_group_id, 'stuck' FROM groups g
        WHERE d.kind <> 'task' AND g.id = d.id AND g.parent_group_id IS NOT NULL
        UNION ALL
        SELECT t.id, 'task' FROM tasks t WHERE d.kind = 'barred' AND t.group_id = d.id
        UNION ALL
        SELECT g.id, 'barred' FROM groups g WHERE d.kind = 'barred' AND g.parent_group_id = d.id
        OFFSET 0
    ) AS n
    WHERE CASE n.kind
        -- Not EXISTS, which may be planned as a hash of the whole table.
        WHEN 'task' THEN (SELECT t.readiness IS NOT NULL OR t.cause_id = $1 FROM tasks t WHERE t.id = n.id)
        WHEN 'stuck' THEN (SELECT g.failed_at IS NULL OR g.cause_id = $1 FROM groups g WHERE g.id = n.id)
        ELSE (SELECT g.skipped_at IS NULL FROM groups g WHERE g.id = n.id) END
),
marked AS (
    UPDATE groups SET failed_at = coalesce($2::timestamptz, now()), cause_id = $1
    WHERE id = ANY (ARRAY(SELECT id FROM doomed WHERE kind <> 'task'))
      AND num_nonnulls(failed_at, completed_at, skipped_at) = 0
),
gone AS (
    UPDATE tasks SET status = 'CANCELLED', cause_id = $1, readiness = NULL, next_retry_at = NULL,
        completed_at = coalesce($2::timestamptz, now()), updated_at = coalesce($2::timestamptz, now())
    WHERE id = ANY (ARRAY(SELECT id FROM doomed WHERE kind = 'task')) AND id <> $1 AND readiness IS NOT NULL
    RETURNING id, has_dependents
)
SELECT count(*)::int AS cancelled, coalesce(array_agg(id) FILTER (WHERE has_dependents), '{}') AS with_dependents FROM gone
