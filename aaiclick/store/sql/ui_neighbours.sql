-- What the task $1 waits for (up) and what waits for it (down), tasks and groups, at most $2 of each.
SELECT e.up, e.id, t.type AS name, t.status::text, t.next_retry_at, g.name AS group_name FROM (
    (SELECT true AS up, previous_id AS id FROM dependencies WHERE next_id = $1 ORDER BY previous_id LIMIT $2)
    UNION ALL
    (SELECT false, next_id FROM dependencies WHERE previous_id = $1 ORDER BY next_id LIMIT $2)
) AS e LEFT JOIN tasks t ON t.id = e.id LEFT JOIN groups g ON g.id = e.id
