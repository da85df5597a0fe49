-- Dead letters, newest first: of the type $1 (NULL: any), with the fingerprint $2 (NULL: any), at most $3.
SELECT id, job_id, type, attempt, failures, completed_at, error_fingerprint, error FROM tasks
WHERE status = 'DEAD_LETTER' AND ($1::text IS NULL OR type = $1) AND ($2::text IS NULL OR error_fingerprint = $2)
ORDER BY completed_at DESC, id DESC LIMIT $3
