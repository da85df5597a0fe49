-- Dead letters, newest first: of the org $1, the type $2, with the fingerprint $3 (NULL: any), before the end $4 and the
-- id $5 (NULL: from the newest), at most $6. Those of the definitions $7 and those added by the tasks $8 have no fingerprint.
SELECT id, org_id, job_id, type, queue, attempt, failures, completed_at, error_fingerprint, error FROM tasks
WHERE status = 'DEAD_LETTER' AND ($1::uuid IS NULL OR org_id = $1) AND ($2::text IS NULL OR type = $2)
  AND ($3::text IS NULL OR (error_fingerprint = $3
    AND (definition_id = ANY ($7::uuid[])) IS NOT TRUE AND (added_by = ANY ($8::bigint[])) IS NOT TRUE))
  AND ($4::timestamptz IS NULL OR (completed_at, id) < ($4::timestamptz, $5::bigint))
ORDER BY completed_at DESC, id DESC LIMIT $6
