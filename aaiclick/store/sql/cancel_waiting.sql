-- Cancel what waits, of the job $1 or among the tasks $2.
UPDATE tasks SET status = 'CANCELLED', readiness = NULL, next_retry_at = NULL,
    completed_at = coalesce($3::timestamptz, now()), cancel_requested_at = coalesce($3::timestamptz, now()),
    updated_at = coalesce($3::timestamptz, now())
WHERE id = ANY (ARRAY(SELECT id FROM tasks WHERE job_id = $1 AND completed_at IS NULL ORDER BY id) || $2::bigint[])
  AND readiness IS NOT NULL
RETURNING id, org_id, job_id, group_id, followed, concurrency_key, status::text, queue, passed_over
