-- What dead letters of the org $1 belong to: a definition, or a task that added them; an example of each.
SELECT definition_id, added_by, max(id) AS id FROM tasks
WHERE status = 'DEAD_LETTER' AND org_id = $1 AND (definition_id IS NOT NULL OR added_by IS NOT NULL) GROUP BY 1, 2
