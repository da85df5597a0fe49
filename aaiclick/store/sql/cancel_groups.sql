-- The groups of a cancelled job cannot complete any more.
UPDATE groups SET failed_at = coalesce($2::timestamptz, now()), cause_id = $1
WHERE job_id = $1 AND completed_at IS NULL AND failed_at IS NULL
