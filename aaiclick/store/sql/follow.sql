-- Something will wait for the tasks $1 of the job $2. Changing their rows tells whoever completes them just now.
WITH locked AS MATERIALIZED (
    SELECT id FROM tasks WHERE id = ANY ($1::bigint[]) AND job_id = $2 ORDER BY id FOR NO KEY UPDATE
)
UPDATE tasks t SET followed = true, updated_at = now() WHERE id = ANY (ARRAY(SELECT id FROM locked))
RETURNING id, CASE WHEN passed_over THEN 'COMPLETED' ELSE status::text END AS status, type, completed_at IS NOT NULL AS ended, added_by, CASE WHEN added_by IS NULL THEN false
    ELSE coalesce((SELECT a.status <> 'COMPLETED' AND a.result IS NULL FROM tasks a WHERE a.id = t.added_by), false) END
    AS staged
