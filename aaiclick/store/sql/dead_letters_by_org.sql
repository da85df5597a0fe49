-- How many dead letters each org has of the type $1, the error fingerprint $2, the ids $3; which, if ids are named.
SELECT org_id, count(*) AS count, CASE WHEN $3::bigint[] IS NOT NULL THEN array_agg(id) END AS ids FROM tasks
WHERE status = 'DEAD_LETTER' AND ($1::text IS NULL OR type = $1) AND ($2::text IS NULL OR error_fingerprint = $2)
  AND ($3::bigint[] IS NULL OR id = ANY ($3::bigint[]))
GROUP BY org_id ORDER BY org_id
