-- name: list_downstream
-- The task $1 and everything downstream: tasks, handlers and groups. A waiting group includes its members; dependents of a group
-- are downstream of each of its members.
WITH RECURSIVE node (id, kind) AS (
    SELECT $1::bigint, 'task'
    UNION
    SELECT n.id, n.kind FROM node d CROSS JOIN LATERAL (
        SELECT e.next_id AS id, CASE e.next_type WHEN 'group' THEN 'behind' ELSE 'task' END AS kind
        FROM dependencies e WHERE e.previous_id = d.id
        UNION ALL
        SELECT t.group_id, 'around' FROM tasks t WHERE d.kind = 'task' AND t.id = d.id AND t.group_id IS NOT NULL
        UNION ALL
        SELECT g.parent_group_id, 'around' FROM groups g
        WHERE d.kind <> 'task' AND g.id = d.id AND g.parent_group_id IS NOT NULL
        UNION ALL
        SELECT t.id, 'task' FROM tasks t WHERE d.kind = 'behind' AND t.group_id = d.id
        UNION ALL
        SELECT g.id, 'behind' FROM groups g WHERE d.kind = 'behind' AND g.parent_group_id = d.id
    ) AS n
)
SELECT DISTINCT id, kind = 'task' AS is_task FROM node
