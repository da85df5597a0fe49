-- The tasks of the definition $1 that were given out under one of the keys $2.
SELECT job_id AS id, status::text, dedupe_key AS key FROM tasks
WHERE definition_id = $1 AND dedupe_key IS NOT NULL AND dedupe_key = ANY ($2::text[])
