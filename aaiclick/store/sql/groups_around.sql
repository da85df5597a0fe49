-- The group $1 and those around it, from the inside out.
WITH RECURSIVE around AS (
    SELECT id, name, parent_group_id, unmet, 1 AS depth FROM groups WHERE id = $1
    UNION ALL
    SELECT g.id, g.name, g.parent_group_id, g.unmet, a.depth + 1 FROM groups g JOIN around a ON g.id = a.parent_group_id
)
SELECT id, name, unmet FROM around ORDER BY depth
