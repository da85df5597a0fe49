-- Tasks of the default org $1 before the id $2, newest first; with status $3, type $4 and queue $5 (NULL: any), at most $6.
-- By the primary key: nearly everything is the default org's where it is used at all.
SELECT {tasks.*} FROM tasks
WHERE org_id = $1 AND id < $2 AND ($3::text IS NULL OR status = $3::task_status) AND ($4::text IS NULL OR type = $4)
  AND ($5::text IS NULL OR queue = $5)
ORDER BY id DESC LIMIT $6
