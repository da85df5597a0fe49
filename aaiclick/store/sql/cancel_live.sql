-- Request the cancellation of leased tasks, of the job $1 or among the tasks $2, and notify their workers. From here on
-- each of them can only become CANCELLED, whatever its worker reports.
UPDATE tasks SET cancel_requested_at = coalesce(cancel_requested_at, $3::timestamptz, now()), updated_at = coalesce($3::timestamptz, now())
WHERE id = ANY (ARRAY(SELECT id FROM tasks WHERE job_id = $1 AND completed_at IS NULL ORDER BY id) || $2::bigint[])
  AND status IN ('CLAIMED', 'RUNNING')
RETURNING id, pg_notify('aaiclick_cancel', coalesce($1::text, id::text))
