-- Dead letters of the org $1 (NULL: of any) by what went wrong, most frequent first; an example of each. Of the definitions $2,
-- and of what the tasks $3 added, it is not told what did: they are one kind.
SELECT fingerprint AS error_fingerprint, count(*) AS count, min(completed_at) AS first, max(completed_at) AS last,
    max(type) AS type, max(id) AS example, (array_agg(error ORDER BY id DESC))[1] AS error, untold
FROM (
    SELECT id, type, completed_at, error, untold, CASE WHEN NOT untold THEN error_fingerprint END AS fingerprint
    FROM tasks CROSS JOIN LATERAL (
        SELECT (definition_id = ANY ($2::uuid[])) IS TRUE OR (added_by = ANY ($3::bigint[])) IS TRUE AS untold) AS u
    WHERE status = 'DEAD_LETTER' AND ($1::uuid IS NULL OR org_id = $1)
) AS letters
GROUP BY fingerprint, untold ORDER BY count(*) DESC, 1 LIMIT 1000
