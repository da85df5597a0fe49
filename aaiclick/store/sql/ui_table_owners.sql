-- Who holds the tables $1, at most $2 of all: first whose result one is, then whose argument.
SELECT r.table_name, r.owner::text, r.owner_id, r.job_id, t.type FROM table_references r LEFT JOIN tasks t ON t.id = r.owner_id
WHERE r.table_name = ANY ($1::text[]) AND r.owner IN ('RESULT', 'TASK', 'JOB', 'ATTEMPT')
ORDER BY r.table_name, array_position('{RESULT,TASK,JOB,ATTEMPT}'::text[], r.owner::text), r.owner_id LIMIT $2
