-- Dead letters, oldest first: of the org $1 (NULL: any), the type $2, the error fingerprint $3, the ids $4, at most $5, dead at
-- $6 (NULL: now).
SELECT id, job_id FROM tasks
WHERE status = 'DEAD_LETTER' AND ($1::uuid IS NULL OR org_id = $1) AND ($2::text IS NULL OR type = $2)
  AND ($3::text IS NULL OR error_fingerprint = $3) AND ($4::bigint[] IS NULL OR id = ANY ($4::bigint[]))
  AND ($6::timestamptz IS NULL OR completed_at <= $6)
ORDER BY completed_at, id LIMIT $5
