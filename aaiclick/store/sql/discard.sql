-- Dead letters that nobody wants back: they have failed for good, and retention may forget them.
UPDATE tasks SET status = 'FAILED', updated_at = now()
WHERE id = ANY (ARRAY(
    SELECT id FROM tasks WHERE status = 'DEAD_LETTER' AND ($1::uuid IS NULL OR org_id = $1) AND ($2::text IS NULL OR type = $2)
      AND ($3::text IS NULL OR error_fingerprint = $3) AND ($4::bigint[] IS NULL OR id = ANY ($4::bigint[]))
    ORDER BY completed_at, id LIMIT $5 FOR UPDATE))
RETURNING id
