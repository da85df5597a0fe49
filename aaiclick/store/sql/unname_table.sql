-- The table $1, in the org of the task $2 (none: in $3, the default one), is about to go with its name: nobody need know
-- of it any more.
WITH whose AS (SELECT coalesce((SELECT t.org_id FROM tasks t WHERE t.id = $2), $3::uuid) AS org_id)
DELETE FROM table_refcounts
WHERE table_name = (SELECT CASE WHEN org_id = $3 THEN $1 ELSE org_id::text || '.' || $1 END FROM whose)
