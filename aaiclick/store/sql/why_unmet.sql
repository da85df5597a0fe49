-- What the tasks and groups $1 wait for and has not completed, at most $2.
SELECT d.next_id, d.previous_type::text AS kind, d.previous_id AS id, coalesce(t.type, g.name) AS name,
    CASE WHEN t.id IS NOT NULL THEN t.status::text WHEN g.failed_at IS NOT NULL THEN 'cannot complete'
         WHEN g.unmet > 0 THEN 'closed' ELSE g.open || ' open' END AS state
FROM dependencies d
LEFT JOIN tasks t ON d.previous_type = 'task' AND t.id = d.previous_id
LEFT JOIN groups g ON d.previous_type = 'group' AND g.id = d.previous_id
WHERE d.next_id = ANY ($1::bigint[]) AND ((t.status <> 'COMPLETED' AND NOT t.passed_over) OR (g.id IS NOT NULL AND g.completed_at IS NULL))
ORDER BY d.previous_id LIMIT $2
