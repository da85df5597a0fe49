-- Ask for the end of what is leased, of the job $1 or among the tasks $2; its worker is told, and has the last word.
UPDATE tasks SET cancel_requested_at = coalesce($3::timestamptz, now()), updated_at = coalesce($3::timestamptz, now())
WHERE id = ANY (ARRAY(SELECT id FROM tasks WHERE job_id = $1 AND completed_at IS NULL ORDER BY id) || $2::bigint[])
  AND status IN ('CLAIMED', 'RUNNING') AND cancel_requested_at IS NULL
RETURNING id, pg_notify('aaiclick_cancel', coalesce($1::text, id::text))
