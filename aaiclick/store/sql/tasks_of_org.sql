-- Tasks of the org $1, which is not the default one, before the id $2, newest first; with status $3, type $4 and queue $5
-- (NULL: any), at most $6. The default org is named so that its rows need not be in the index.
SELECT {tasks.*} FROM tasks
WHERE org_id = $1 AND org_id <> '00000000-0000-4000-8000-000000000001' AND id < $2
  AND ($3::text IS NULL OR status = $3::task_status) AND ($4::text IS NULL OR type = $4)
  AND ($5::text IS NULL OR queue = $5)
ORDER BY org_id DESC, id DESC LIMIT $6
