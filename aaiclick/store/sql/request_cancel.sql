-- The job $1 is to end; $2 says why if that is a failure.
UPDATE jobs SET cancel_requested_at = coalesce($3::timestamptz, now()), error = coalesce($2, error)
WHERE id = $1 AND completed_at IS NULL RETURNING open_tasks, id
