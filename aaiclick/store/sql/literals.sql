-- name: load_literals
-- Literals $1 of the org $2.
SELECT result ->> 'table_id' AS name, literal FROM tasks
WHERE literal IS NOT NULL AND result ->> 'table_id' = ANY ($1::text[]) AND org_id = $2

-- name: find_literal
-- The literal $1 of the org $2.
SELECT result ->> 'table_id' AS table_id, id AS task_id, job_id, completed_at, literal AS text FROM tasks
WHERE literal IS NOT NULL AND result ->> 'table_id' = $1 AND org_id = $2

-- name: list_job_literals
-- At most $4 literals of the job $1 of the org $2 after the table id $3, in order.
SELECT result ->> 'table_id' AS table_id, id AS task_id, job_id, completed_at, literal AS text FROM tasks
WHERE literal IS NOT NULL AND job_id = $1 AND org_id = $2 AND result ->> 'table_id' > $3
ORDER BY result ->> 'table_id' LIMIT $4

-- name: reserve_literal_table
-- Register the table of the literal $1 of the org $2 for the caller, who creates it, with a reference by its task. It is
-- not registered twice, unless the first caller has not finished within $3 seconds.
WITH returned AS MATERIALIZED (
    SELECT id, job_id, org_id FROM tasks WHERE literal IS NOT NULL AND result ->> 'table_id' = $1 AND org_id = $2
    FOR NO KEY UPDATE
),
registered AS (
    INSERT INTO table_refcounts AS c (table_name, org_id) SELECT $1, org_id FROM returned
    ON CONFLICT (table_name) DO UPDATE SET updated_at = now()
        WHERE c.updated_at < now() - $3::float8 * interval '1 second' AND c.dropping_at IS NULL
    RETURNING 1
),
held AS (
    INSERT INTO table_references (table_name, owner, owner_id, job_id)
    SELECT $1, 'RESULT', id, job_id FROM returned WHERE EXISTS (SELECT FROM registered) ON CONFLICT DO NOTHING
)
SELECT EXISTS (SELECT FROM returned) AS is_literal, EXISTS (SELECT FROM registered) AS is_reserved

-- name: replace_literal
-- The literal $1 of the org $2 is a table now: readers use that.
UPDATE tasks SET literal = NULL, updated_at = now() WHERE literal IS NOT NULL AND result ->> 'table_id' = $1 AND org_id = $2

-- name: abandon_literal_table
-- Let the next caller create the table of the literal $1 of the org $2.
UPDATE table_refcounts SET updated_at = '-infinity' WHERE table_name = $1 AND org_id = $2 AND EXISTS (
    SELECT FROM tasks t WHERE t.literal IS NOT NULL AND t.result ->> 'table_id' = $1 AND t.org_id = $2)
